#include "engines/serving_engine.h"

#include <algorithm>

#include "base/check.h"
#include "engines/shell_words.h"
#include "text/number.h"

namespace headroom::engines {
namespace {

// Flags and their values, those that are known.
class Words {
 public:
  explicit Words(std::vector<std::string> begin) : words_(std::move(begin)) {}
  void add(std::string_view flag, std::string value) {
    words_.emplace_back(flag);
    words_.push_back(std::move(value));
  }
  void add(std::string_view flag, int64_t value) { add(flag, std::to_string(value)); }
  void add(std::string_view flag, const std::optional<int64_t>& value) {
    if (value) add(flag, *value);
  }
  void add_above_one(std::string_view flag, int64_t value) {
    if (value > 1) add(flag, value);
  }
  void add(std::string_view flag) { words_.emplace_back(flag); }
  [[nodiscard]] std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

// --kv-cache-memory-bytes takes the place of --gpu-memory-utilization, so that servers on one GPU
// do not count each other's memory.
std::vector<std::string> vllm_words(const ServerSetting& server) {
  Words words({"vllm", "serve", server.model});
  words.add("--max-num-seqs", server.max_num_seqs);
  if (server.kv_cache) words.add("--kv-cache-memory-bytes", server.kv_cache->count);
  words.add("--max-num-batched-tokens", server.max_num_batched_tokens);
  if (server.has_chunked_prefill) {
    words.add(*server.has_chunked_prefill ? "--enable-chunked-prefill"
                                          : "--no-enable-chunked-prefill");
  }
  words.add_above_one("--tensor-parallel-size", server.tensor_parallel);
  words.add_above_one("--pipeline-parallel-size", server.pipeline_parallel);
  words.add("--port", server.port);
  return words.take();
}

std::vector<std::string> sglang_words(const ServerSetting& server) {
  Words words({"python3", "-m", "sglang.launch_server", "--model-path", server.model});
  words.add("--max-running-requests", server.max_num_seqs);
  words.add("--max-total-tokens", server.kv_tokens);
  if (server.has_chunked_prefill && !*server.has_chunked_prefill) {
    words.add("--chunked-prefill-size", int64_t{-1});
  } else {
    words.add("--chunked-prefill-size", server.max_num_batched_tokens);
  }
  words.add_above_one("--tp-size", server.tensor_parallel);
  words.add_above_one("--pp-size", server.pipeline_parallel);
  words.add("--enable-metrics");
  words.add("--port", server.port);
  return words.take();
}

std::vector<std::string> tensorrt_llm_words(const ServerSetting& server) {
  Words words({"trtllm-serve", server.model});
  words.add("--max_batch_size", server.max_num_seqs);
  words.add("--max_num_tokens", server.max_num_batched_tokens);
  if (server.kv_free_share) {
    words.add("--kv_cache_free_gpu_memory_fraction",
              text::formatted("%.3f", *server.kv_free_share));
  }
  words.add_above_one("--tp_size", server.tensor_parallel);
  words.add_above_one("--pp_size", server.pipeline_parallel);
  words.add("--port", server.port);
  return words.take();
}

// It reads one file of its own format; the cache is one of all slots.
std::vector<std::string> llama_cpp_words(const ServerSetting& server) {
  const size_t slash = server.model.rfind('/');
  const std::string name =
      slash == std::string::npos ? server.model : server.model.substr(slash + 1);
  Words words({"llama-server", "--model", name + ".gguf"});
  words.add("--parallel", server.max_num_seqs);
  if (server.kv_tokens) {
    words.add("--kv-unified");
    words.add("--ctx-size", *server.kv_tokens);
  }
  words.add("--batch-size", server.max_num_batched_tokens);
  words.add("--gpu-layers", int64_t{999});
  words.add("--metrics");
  words.add("--port", server.port);
  return words.take();
}

}  // namespace

const EngineNames& names_of(ServingEngine engine) {
  const auto found = std::ranges::find(kEngines, engine, &EngineNames::engine);
  HEADROOM_CHECK(found != kEngines.end(), "an engine");
  return *found;
}

std::optional<ServingEngine> parse_serving_engine(std::string_view word) {
  const auto found = std::ranges::find(kEngines, word, &EngineNames::word);
  if (found == kEngines.end()) return std::nullopt;
  return found->engine;
}

std::vector<std::string> serve_words(const ServerSetting& server) {
  switch (server.engine) {
    case ServingEngine::vllm:
      return vllm_words(server);
    case ServingEngine::sglang:
      return sglang_words(server);
    case ServingEngine::tensorrt_llm:
      return tensorrt_llm_words(server);
    case ServingEngine::llama_cpp:
      return llama_cpp_words(server);
  }
  return {};
}

std::string serve_line(const ServerSetting& server) {
  std::string line;
  for (const std::string& word : serve_words(server)) {
    if (!line.empty()) line += ' ';
    line += shell_word(word);
  }
  return line;
}

std::vector<std::string> replica_lines(const ServerSetting& server, int count) {
  HEADROOM_CHECK(count >= 2, "replicas");
  std::vector<std::string> lines{"nvidia-cuda-mps-control -d"};
  for (int i = 0; i < count; ++i) {
    ServerSetting one = server;
    one.port = server.port + i;
    lines.push_back(serve_line(one) + " & until curl -sf localhost:" + std::to_string(one.port) +
                    "/health; do sleep 1; done");
  }
  lines.emplace_back("echo quit | nvidia-cuda-mps-control  # when done");
  return lines;
}

}  // namespace headroom::engines
