// What `headroom batch` is asked. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/curve.h"
#include "batch/price.h"
#include "batch/target.h"
#include "device/device.h"
#include "engines/serving_engine.h"
#include "formats/request_lengths.h"
#include "formats/serving_points.h"
#include "operator/dtype.h"

namespace headroom::batch {

// Requests that come by themselves.
struct OpenLoadQuestion {
  std::vector<double> rates;  // requests a second; empty: a sweep up to what the server could do
  bool is_search = false;     // of a running server: the highest rate that keeps the targets
  std::vector<serving::LatencyTarget> targets;  // beside the question's slo
  std::optional<double> attain;                 // share of the requests that is to meet them all
  std::optional<int64_t> limit;                 // max_num_seqs; nothing: the best
  int64_t max_num_batched_tokens = 2048;  // vLLM's default where the GPU is none of the largest
  bool has_chunked_prefill = true;
  std::optional<double> prefill_tokens_per_second;  // else predicted
  // Of one run that the figures are held against; nothing: of very many requests.
  std::optional<double> window_seconds;
  formats::RequestTimes times;            // of the question's requests, where they were recorded
  serving::Speculation speculation = {};  // of the simulated engine
  uint64_t seed = 0;
  [[nodiscard]] bool is_recorded() const { return !times.arrived_seconds.empty(); }
  [[nodiscard]] bool is_asked() const { return !rates.empty() || !targets.empty() || is_search; }
};

struct BatchQuestion {
  std::string model;                          // for people and commands; may be empty with points
  std::optional<device::Device> device;       // may be missing with points
  std::vector<formats::ServingPoint> points;  // empty: predicted
  std::string points_file;                    // for people
  std::vector<std::string> points_left_out;   // of it, a sentence each
  bool points_partial = false;                // something of it was damaged
  std::optional<ItlTarget> slo;
  OpenLoadQuestion open_load;
  double min_efficiency = 0.1;
  // Of the requests: given as means and a coefficient of variation, or by a trace of them.
  double input_tokens = 161;  // the means of ShareGPT's conversations, as arXiv 2503.08311 has them
  double output_tokens = 338;
  double length_variation = 1;
  std::vector<formats::RequestLengths> requests;  // takes the place of the three
  std::string requests_file;                      // for people
  op::DType weights = op::DType::bf16;            // and cache
  timing::DecodeVariant variant = {};             // otherwise than the model says
  // As they were asked for, for the commands; empty: they were not.
  std::string dtype;        // float16, bfloat16 or float32
  std::string weight_type;  // of the variant's weights: fp8, int8, fp4 or int4
  // The checkpoint's own, of which no engine is told.
  std::optional<std::string> checkpoint_type = std::nullopt;
  std::string cache_type;                                        // of its cache: fp8, int8 or int4
  engines::ServingEngine engine = engines::ServingEngine::vllm;  // of the commands
  std::string engine_version;                                    // of a former one; empty: today's
  PriceQuestion price;
  std::optional<double> host_gap;  // share of a step in which the GPU waits for the host
  int most_replicas = 4;
  // Among which a smaller one may do.
  std::vector<device::Device> other_devices;
};

inline constexpr double kMostTokens = 1e7;  // of a request's input, or output
inline constexpr double kMostVariation = 10;
inline constexpr int kMostReplicas = 16;
inline constexpr double kMostRate = 1e5;  // requests a second
inline constexpr size_t kMostRates = 20;
inline constexpr int64_t kMostLimit = 65536;  // of sequences

}  // namespace headroom::batch
