// What a server says of itself at /metrics: Prometheus' text, of vLLM, SGLang and llama.cpp's
// server.
//
// Only the few figures that a batch needs are read; of several engines or models the counts are
// summed and of shares the largest counts. Lines that cannot be read are passed over. Pure;
// thread-safe; some 200 MB/s.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::serving {

struct ServerMetrics {
  std::optional<double> running = std::nullopt;   // requests in the batch
  std::optional<double> waiting = std::nullopt;   // in the queue
  std::optional<double> kv_share = std::nullopt;  // of the key-value cache in use, 0 to 1

  // Since the server started.
  std::optional<double> preemptions = std::nullopt;
  std::optional<double> prompt_tokens = std::nullopt;  // read
  std::optional<double> output_tokens = std::nullopt;  // written
  std::optional<double> answered = std::nullopt;       // requests
  // Tokens of prompts that were looked up in the cache of prefixes, and found.
  std::optional<double> prefix_queries = std::nullopt;
  std::optional<double> prefix_hits = std::nullopt;
  // Of the times between tokens: vLLM's and SGLang's histogram of them.
  std::optional<double> itl_seconds = std::nullopt;
  std::optional<double> itl_count = std::nullopt;

  // Engines behind one address (data parallel ranks): series of the gauge `running`.
  int64_t engines = 0;
};

[[nodiscard]] ServerMetrics parse_metrics(std::string_view text);

}  // namespace headroom::serving
