// Two recordings of the same program: what got slower, and why, in milliseconds of a step.
//
// Each moment of the steps belongs to what ran in it, or to what it was idle for (accounts.h); so
// the differences of all rows sum to that of the wall time a step, time between steps included.
// Rows are operators with their shapes, and kernels by name where no operator is known (in graphs).
// Where the shapes of an operator have nothing in common, its rows are one.
//
// Whether the second is slower is judged against how much the steps of each differ among
// themselves: a 90 % interval of the ratio of the two means on the logarithmic scale, so that the
// two runs exchanged give its reciprocal. One step has no spread; then the ratio is judged as it
// is, and the answer says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/run.h"

namespace headroom::ops {

struct ComparedRun {
  std::string file;
  std::string device;
  int64_t rank = -1;
  size_t steps = 0;
  double step_ms = 0;  // mean
  // Of the steps' times, where there are several: standard deviation.
  std::optional<double> spread_ms;
  bool is_partial = false;
};

enum class ChangeReason {
  none,
  added,
  removed,
  more_calls,
  fewer_calls,
  other_kernels,
  other_shapes,
  each_slower,
  each_faster,
  hidden_less,  // it runs less beside other work, which is most of the change
  hidden_more,
  backlog,  // of what was launched before the steps and still ran in them
  host,     // the device waits for the next launch
  launch,
  unrecorded  // nothing ran, and no call was recorded that could say why
};

struct OperatorChange {
  std::string name;
  std::string shapes;  // "" where they are not known, or several
  std::string group;
  ChangeReason reason = ChangeReason::none;
  // Each a step: of the wall time, of the kernel time, and how often.
  double before_ms = 0, after_ms = 0;
  double before_kernel_ms = 0, after_kernel_ms = 0;
  double before_count = 0, after_count = 0;
  // Of the wall time: what was launched before the steps. It is none of the calls or kernel time.
  double before_backlog_ms = 0, after_backlog_ms = 0;
  std::string before_kernel, after_kernel;  // the one that takes most

  [[nodiscard]] double change_ms() const { return after_ms - before_ms; }
};

struct GroupChange {
  std::string name;
  std::string title;
  double before_ms = 0, after_ms = 0;  // of the wall time of a step
};

enum class Slowdown { within_limit, beyond_limit, within_spread, not_asked };

struct OpsComparison {
  ComparedRun before;
  ComparedRun after;
  double slowdown_pct = 0;                                    // of the mean step
  std::optional<double> slowdown_low_pct, slowdown_high_pct;  // where there is a spread
  std::optional<double> max_slowdown_pct;                     // that was asked for
  // beyond_limit: also the low end of the interval is. within_spread: only the mean is.
  Slowdown verdict = Slowdown::not_asked;
  std::vector<OperatorChange> changes;  // the largest first, either way
  std::vector<GroupChange> groups;      // the same; with "idle"
  std::vector<std::string> notes;
};

OpsComparison compare(const RecordedRun& before, const RecordedRun& after,
                      const OperatorRules& rules, std::optional<double> max_slowdown_pct);

}  // namespace headroom::ops
