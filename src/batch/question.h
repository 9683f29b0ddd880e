// What `headroom batch` is asked. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/curve.h"
#include "batch/target.h"
#include "device/device.h"
#include "formats/request_lengths.h"
#include "formats/serving_points.h"
#include "operator/dtype.h"

namespace headroom::batch {

struct BatchQuestion {
  std::string model;                          // for people and commands; may be empty with points
  std::optional<device::Device> device;       // may be missing with points
  std::vector<formats::ServingPoint> points;  // empty: predicted
  std::string points_file;                    // for people
  std::vector<std::string> points_left_out;   // of it, a sentence each
  bool points_partial = false;                // something of it was damaged
  std::optional<ItlTarget> slo;
  double min_efficiency = 0.1;
  // Of the requests: given as means and a coefficient of variation, or by a trace of them.
  double input_tokens = 161;  // the means of ShareGPT's conversations, as arXiv 2503.08311 has them
  double output_tokens = 338;
  double length_variation = 1;
  std::vector<formats::RequestLengths> requests;  // takes the place of the three
  std::string requests_file;                      // for people
  op::DType weights = op::DType::bf16;            // and cache
  std::optional<double> host_gap;  // share of a step in which the GPU waits for the host
  int most_replicas = 4;
};

inline constexpr double kMostTokens = 1e7;  // of a request's input, or output
inline constexpr double kMostVariation = 10;
inline constexpr int kMostReplicas = 16;

}  // namespace headroom::batch
