// Measured serving points as CSV: what a server gave at each limit of its batch.
//
// Columns: batch (the configured limit), throughput_tokens_per_second (output tokens), itl_ms (the
// mean time between tokens); and, where there are some, running_mean (what was really in flight)
// and kv_pct (the most of the key-value cache that was in use), throughput_error_pct and
// itl_error_pct (standard errors of the two means, relative). Any order; others are passed over; an
// empty field is one that was not measured. Pure but for the file; not synchronised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::formats {

struct ServingPoint {
  int64_t batch = 1;
  double throughput_tokens_per_second = 0;
  double itl_seconds = 0;
  std::optional<double> running_mean = std::nullopt;
  std::optional<double> kv_share = std::nullopt;          // 0 to 1
  std::optional<double> throughput_error = std::nullopt;  // relative standard errors
  std::optional<double> itl_error = std::nullopt;
};

inline constexpr size_t kMostServingPoints = 1000;
inline constexpr int64_t kMostServingBatch = 65536;

// A file ("-" is standard input) of at most 1 MiB. Errors name the line; no point at all is one.
Result<std::vector<ServingPoint>> read_serving_points(const std::string& path);
// The same from memory; `file` is only used in errors.
Result<std::vector<ServingPoint>> parse_serving_points(std::string_view text,
                                                       const std::string& file);

// The same points as such a file, that reads back to the same values.
[[nodiscard]] std::string serving_points_csv(const std::vector<ServingPoint>& points);

}  // namespace headroom::formats
