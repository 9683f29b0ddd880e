// RunCost: what a training run costs by the step time of its answer, on a machine that is rented
// and on one that was bought (device/price.h).
//
//   a billion tokens     = devices x price of an hour / (tokens/s x 3600 x busy) x 10^9
//   a thousand steps     = devices x price of an hour x seconds a step / (3600 x busy) x 10^3
//
// 8 devices at 2.10 an hour and 50,000 tokens/s are 93.3 a billion tokens. The interval is the step
// time's; what a price says is taken to be sure. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "device/price.h"
#include "fit/time/step_seconds.h"

namespace headroom::fit {

// `seconds` on `devices`, priced on each machine: low, expected and high as the seconds have them.
using Cost = Estimate;

struct MachineCost {
  device::PricedMachine machine;
  Cost of_tokens;             // a billion; zeroes where a sequence is no tokens
  Cost of_steps;              // a thousand
  std::optional<Cost> epoch;  // where its tokens were said
};

struct RunCost {
  int64_t devices = 1;
  double busy = 1;
  bool counts_tokens = true;  // false: a sequence is no tokens
  std::optional<int64_t> epoch_tokens;
  std::optional<SecondsInterval> epoch_seconds;
  double oom_probability = 0;  // of the step, on either machine
  std::vector<MachineCost> machines;
};

inline constexpr int64_t kMostEpochTokens = 1'000'000'000'000'000;

// REQUIRES: a price was asked for, the step takes more than no time, and where epoch_tokens is
// there a sequence is tokens.
[[nodiscard]] RunCost run_cost(const device::PriceQuestion& price, const StepTime& time,
                               int64_t devices, std::optional<int64_t> epoch_tokens);

}  // namespace headroom::fit
