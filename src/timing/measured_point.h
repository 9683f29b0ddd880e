// A call whose time was measured, and its form in files.
//
//   {"class": "gemm_fp32", "rate": "fp32", "shape": {"batch": 1, "m": 8, "n": 4096, "k": 4096},
//    "bytes": 67502080, "seconds": 0.0071, "uncertainty": 0.004, "samples": 25}
//
// The work of a call follows from its shape; its bytes are given, since they depend on the types of
// its operands. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "text/json.h"
#include "timing/call.h"

namespace headroom::timing {

struct MeasuredPoint {
  Call call;
  double seconds = 0;
  double uncertainty = 0;  // half of the median's 95 % interval, as a share of it; 0: not known
  int64_t samples = 0;     // 0: not known
  // |log| of the ratio of what two rounds of a run found, minutes apart; 0: one round.
  double drift_log = 0;
};

[[nodiscard]] text::Json point_json(const MeasuredPoint& point);

// Bounds: dimensions to 2^31, bytes to 1e18, seconds from 1e-10 to 1e6; 100,000 points.
Result<MeasuredPoint> read_point(const text::JsonView& view);
Result<std::vector<MeasuredPoint>> read_points(const text::JsonView& root, std::string_view key);

}  // namespace headroom::timing
