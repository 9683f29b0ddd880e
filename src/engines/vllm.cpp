#include "engines/vllm.h"

#include "base/check.h"

namespace headroom::engines {

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string serve_line(const VllmServer& server) {
  std::string line = "vllm serve " + shell_word(server.model) + " --max-num-seqs " +
                     std::to_string(server.max_num_seqs);
  if (server.kv_cache) line += " --kv-cache-memory-bytes " + std::to_string(server.kv_cache->count);
  return line + " --port " + std::to_string(server.port);
}

std::vector<std::string> replica_lines(const VllmServer& server, int count) {
  HEADROOM_CHECK(count >= 2, "replicas");
  std::vector<std::string> lines{"nvidia-cuda-mps-control -d"};
  for (int i = 0; i < count; ++i) {
    VllmServer one = server;
    one.port = server.port + i;
    lines.push_back(serve_line(one) + " & until curl -sf localhost:" + std::to_string(one.port) +
                    "/health; do sleep 1; done");
  }
  lines.emplace_back("echo quit | nvidia-cuda-mps-control  # when done");
  return lines;
}

}  // namespace headroom::engines
