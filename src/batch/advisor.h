// BatchingConfigurationAdvisor (arXiv 2503.08311): the largest batch that still pays and meets the
// latency target.
//
//   B_opt = max { B : E(B) > min_efficiency and ITL(B) <= target },  E(B) = T(B) / (B T(1))
//
// as the paper's own scripts compute it, less those batches from which on all, whether or not they
// meet the target, give less than a smaller one: throughput may fall with the batch, and then the
// larger one only waits longer. (In the paper's sweeps it does not fall before the target does.)
// Where it rises again behind a dip the dip is noise: queues and preemption only grow. Its interval
// holds the batches that would be chosen if every figure were at the bad, and at the good, end of
// its own; which of two gives more is told by what is expected. Linear in the candidates;
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "batch/curve.h"

namespace headroom::batch {

// What keeps the batch from being larger.
enum class Bound : uint8_t { latency, efficiency, throughput, memory, measured, engine };
[[nodiscard]] std::string_view name_of(Bound bound);

struct AdvisorOptions {
  std::optional<double> itl_target_seconds = std::nullopt;
  double min_efficiency = 0.1;
  std::optional<int64_t> most_batch = std::nullopt;  // that the engine takes
};

// Nothing where there is no target.
[[nodiscard]] constexpr std::optional<bool> meets(double itl_seconds,
                                                  const std::optional<double>& target) {
  if (!target) return std::nullopt;
  return itl_seconds <= *target;
}

struct Advice {
  std::optional<int64_t> batch;  // nothing: no candidate meets the target
  std::optional<int64_t> low;    // nothing: at the bad ends of the intervals none does
  std::optional<int64_t> high;
  Bound bound = Bound::latency;
};

class BatchingConfigurationAdvisor {
 public:
  explicit BatchingConfigurationAdvisor(const AdvisorOptions& options) : options_(options) {}

  // T(B) / (B T(1)).
  [[nodiscard]] static Interval efficiency(const BatchPoint& point, const BatchPoint& one);

  // `curve` in increasing batch, `one` its figures at batch 1. `last_bound` is what ends the curve.
  [[nodiscard]] Advice advise(const std::vector<BatchPoint>& curve, const BatchPoint& one,
                              Bound last_bound) const;

 private:
  AdvisorOptions options_;
};

}  // namespace headroom::batch
