// What B_opt, its cache and its throughput would be with another cache, other weights, another
// attention kernel, or another model of the same size.
//
// Each variation is predicted like the model itself, with the same targets; its gain is that of
// throughput at its own B_opt over throughput at the model's, or where percentiles are the target
// of the highest rate that keeps them. A law that errs, errs in both alike:
// the gain's range spans what it is at the low, the expected and the high end of the law, with the
// B_opts of that end; an end at which one of the two has none is left out. It is no 90 % interval.
// What a variation does to what is answered is not told. Pure; thread-safe; some ten milliseconds
// each, with percentiles half a second.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "batch/baseline.h"

namespace headroom::batch {

struct WhatIf {
  std::string name;
  bool is_other_model = false;  // not a setting of an engine: another one has to be trained
  Advice advice;                // without a batch: none meets the target
  // In a closed loop; nothing where percentiles are the target.
  Interval throughput_tokens_per_second{};
  Interval itl_seconds{};
  // Where they are: instead of the advice.
  std::optional<LoadBest> load;
  std::optional<Interval> speedup;  // with its range
  double kv_needed_bytes = 0;       // on one device
  double kv_freed_bytes = 0;
};

// Of the question's model as `predicted`; empty where no batch meets the target of a closed loop.
Result<std::vector<WhatIf>> what_ifs(const Baseline& base, const Predicted& predicted,
                                     const timing::TimingModel& model);

}  // namespace headroom::batch
