// What `headroom batch` is asked. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/curve.h"
#include "batch/target.h"
#include "device/device.h"
#include "formats/serving_points.h"
#include "operator/dtype.h"

namespace headroom::batch {

struct BatchQuestion {
  std::string model;                          // for people and commands; may be empty with points
  std::optional<device::Device> device;       // may be missing with points
  std::vector<formats::ServingPoint> points;  // empty: predicted
  std::string points_file;                    // for people
  std::optional<ItlTarget> slo;
  double min_efficiency = 0.1;
  Lengths lengths;
  op::DType weights = op::DType::bf16;  // and cache
  std::optional<double> host_gap;       // share of a step in which the GPU waits for the host
  int most_replicas = 4;
};

inline constexpr int64_t kMostTokens = 1'000'000;  // of a request's input, or output
inline constexpr int kMostReplicas = 16;

}  // namespace headroom::batch
