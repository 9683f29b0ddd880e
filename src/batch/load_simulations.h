// The simulations that an answer about open load is made of: drawings of the requests, at the low,
// the expected and the high end of what iterations take.
//
// Expected is what the drawings show together, under the expected law: the means of their figures,
// held against the targets. So a rate's row and the highest rate say the same. Thread-safe once
// made.
#pragma once

#include <array>
#include <vector>

#include "batch/open_load.h"

namespace headroom::batch {

inline constexpr size_t kExpectedEnd = 1;     // of the three ends
inline constexpr size_t kSimulatedRuns = 30;  // where a row is held against one run

// How much is simulated of a rate.
struct SimulatedExtent {
  size_t drawings = 3;  // of Poisson arrivals; of a recorded trace there is one alone
  double tokens = 1e6;  // that one of them writes, about
  // Whether a backlog at the window's end says that the load is too high. Of few requests it may
  // be chance; the rate of a closed loop bounds all rates anyhow.
  bool judges_backlog = true;
};
inline constexpr SimulatedExtent kOfAnswer{};
// To hold many servers against each other.
inline constexpr SimulatedExtent kOfComparison{
    .drawings = 1, .tokens = 3e5, .judges_backlog = false};

class LoadSimulations {
 public:
  // `question` and `basis` must outlive it.
  LoadSimulations(const BatchQuestion& question, const OpenLoadBasis& basis,
                  serving::OpenLoadGoal goal, const SimulatedExtent& extent = kOfAnswer);

  [[nodiscard]] const std::vector<serving::OpenLoad>& loads() const { return loads_; }
  // Requests a second with as many always in flight as the limit: simulated, or where there are too
  // few requests for that by the curve. No higher rate is served for long: with so many at work and
  // others waiting no more are answered.
  [[nodiscard]] double closed_rate(const BatchPoint& point, size_t end) const;
  // `closed`: the limit's closed rate at each end.
  [[nodiscard]] OpenLoadRow row(double rate, int64_t limit,
                                const std::array<double, 3>& closed) const;
  // The highest rate that keeps the targets, at most the closed one. `near`: about what it will be;
  // 0: not known. As expected, of all drawings together.
  [[nodiscard]] double highest_expected(int64_t limit, double closed, double near) const;
  // Whether one drawing keeps the targets, at one end of the law.
  [[nodiscard]] bool keeps(int64_t limit, size_t end, size_t drawing, double rate) const;
  // Of one drawing, at one end of the law.
  [[nodiscard]] double highest_of(int64_t limit, size_t end, size_t drawing, double closed,
                                  double near) const;
  // From the least to the most that a drawing has at either end.
  [[nodiscard]] Interval highest_interval(int64_t limit, const std::array<double, 3>& closed,
                                          double expected) const;

 private:
  [[nodiscard]] serving::EngineLimits limits(int64_t limit) const;
  [[nodiscard]] double speculation_gain(int64_t sequences, size_t end) const;
  [[nodiscard]] std::vector<serving::OpenLoad> runs_at(double rate) const;
  const OpenLoadQuestion& question_;
  const OpenLoadBasis& basis_;
  serving::OpenLoadGoal goal_;
  bool judges_backlog_;
  double output_mean_ = 1;
  std::vector<serving::OpenLoad> loads_;
};

}  // namespace headroom::batch
