// vLLM's command line: what starts a server with a batch limit and just the cache that it needs,
// and several of them on one GPU under NVIDIA's MPS.
//
// Flags as its documentation of 2026 has them: --kv-cache-memory-bytes takes the place of
// --gpu-memory-utilization, so that servers on one GPU do not count each other's memory. They start
// one after another, as servers that start together measure each other (vllm#55827). Words from
// outside are quoted for a POSIX shell. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace headroom::engines {

struct VllmServer {
  std::string model;
  int64_t max_num_seqs = 1;
  std::optional<Bytes> kv_cache = std::nullopt;  // nothing: what the engine takes by itself
  int port = 8000;
};

[[nodiscard]] std::string serve_line(const VllmServer& server);

// Starts the MPS daemon and `count` servers on ports from server.port on, each once the one before
// answers; the last line stops the daemon. REQUIRES: count >= 2.
[[nodiscard]] std::vector<std::string> replica_lines(const VllmServer& server, int count);

// A word as a POSIX shell takes it, quoted where it must be.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace headroom::engines
