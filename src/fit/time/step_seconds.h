// How long a step takes, as answers say it: plain values.
#pragma once

#include <cstdint>
#include <string>

#include "base/provenance.h"

namespace headroom::fit {

// Of anything, with the ends of its 90 % interval.
struct Estimate {
  double low = 0;
  double expected = 0;
  double high = 0;
};
using SecondsInterval = Estimate;

[[nodiscard]] inline Estimate operator*(double times, const Estimate& one) {
  return {times * one.low, times * one.expected, times * one.high};
}

// What a step of the optimizer takes, all its micro-batches included: of the devices, and of
// their host where timing/step_time.h knows what it takes.
struct StepTime {
  SecondsInterval step_seconds;
  double tokens_per_second = 0;      // of all devices; 0 where a sequence is no tokens
  double compute_seconds = 0;        // kernels alone
  double communication_seconds = 0;  // collectives alone
  double exposed_seconds = 0;        // of those, what the kernels stand still for
  double host_seconds = 0;           // that they stand still for what the host launches late
  double pipeline_seconds = 0;       // that stages of a pipeline wait for each other
  int64_t kernels = 0;
  Provenance provenance = Provenance::extrapolated;
  std::string basis;  // of the law that takes longest
};

}  // namespace headroom::fit
