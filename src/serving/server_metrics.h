// What a server says of itself at /metrics: Prometheus' text, of vLLM, SGLang and llama.cpp's
// server.
//
// Only the few gauges that a batch needs are read; of several engines or models the counts are
// summed and of shares the largest counts. Lines that cannot be read are passed over. Pure;
// thread-safe; some 200 MB/s.
#pragma once

#include <optional>
#include <string_view>

namespace headroom::serving {

struct ServerMetrics {
  std::optional<double> running = std::nullopt;      // requests in the batch
  std::optional<double> waiting = std::nullopt;      // in the queue
  std::optional<double> kv_share = std::nullopt;     // of the key-value cache in use, 0 to 1
  std::optional<double> preemptions = std::nullopt;  // since the server started
};

[[nodiscard]] ServerMetrics parse_metrics(std::string_view text);

}  // namespace headroom::serving
