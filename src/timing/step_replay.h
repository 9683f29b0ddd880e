// Replay of a step's calls on a device's streams: when each begins, and for what the stream that
// computes stands still (step_time.h says which streams there are and what waits for what).
//
// Problem: a step has more micro-batches than anybody wants to go through one by one, but what one
// more adds is not the same for each: a gather that was begun before the first may outlast many of
// them, and sends of one run into the next. So the calls of a micro-batch that are run again and
// again are marked, and what they do is composed instead of extrapolated: they map the times at
// which the streams are free by maxima and sums alone, and so does a million of them in a row.
//
//   1. With so many repetitions the outcome is that of the same calls written out, but for
//   rounding.
//   2. seconds = compute + exposed; exposed >= 0, and is what computing stands still for, be that a
//   collective or the host.
//
// The host launches in order: a kernel begins once it is launched, a collective too. Launching
// takes the host a time each, and what it does around a unit of FSDP1's more (HostCosts). It is
// ahead of the device but where it waits for it: for what a kernel found (nonzero's sizes), and,
// before it gathers a unit of FSDP1's, until the unit before the last that it let go of was done
// with (limit_all_gathers: at most two are in flight; torch/distributed/fsdp/_limiter_utils.py).
//
// Linear in the calls; of those that are repeated, times the streams; and the logarithm of the
// repetitions times the cube of the streams. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "step/trace.h"

namespace headroom::timing {

// Calls that are run `times` times in a row instead of once.
struct RepeatedCalls {
  size_t first = 0;
  size_t count = 0;  // 0: none
  int64_t times = 1;
  [[nodiscard]] bool has(size_t call) const { return call >= first && call - first < count; }
};

// What a step has more than one that is alike but shorter; nothing where that is not one run of
// calls.
[[nodiscard]] std::optional<RepeatedCalls> added_calls(std::span<const step::OperatorCall> longer,
                                                       std::span<const step::OperatorCall> shorter);

// The same, read from `calls` alone: what they have more than one without the `count` calls from
// `begin` on; nothing where those are not followed by as many that are alike, which would tell that
// one more of them changes nothing else.
[[nodiscard]] std::optional<RepeatedCalls> calls_twice_in_a_row(
    std::span<const step::OperatorCall> calls, size_t begin, size_t count);

// What the host does, in seconds; 0: it is always ahead.
struct HostCosts {
  double launch = 0;
  double unit = 0;  // around a gather or a reduction of FSDP1's
};

// How many times as long as it is priced, and what the host takes.
struct Pace {
  double kernels = 1;
  double collectives = 1;
  HostCosts host{};
};

struct Replayed {
  double seconds = 0;
  double compute = 0;
  double communication = 0;
  double exposed = 0;
  double blocking = 0;  // StepTime::blocking_seconds
};

[[nodiscard]] bool is_collective(const step::OperatorCall& call);

// `seconds` is what each call takes by itself.
[[nodiscard]] Replayed replay(std::span<const step::OperatorCall> calls,
                              std::span<const double> seconds, const Pace& pace,
                              const RepeatedCalls& repeated);

// What each of very many repetitions takes, once they are all that the streams do.
[[nodiscard]] double steady_seconds(std::span<const step::OperatorCall> calls,
                                    std::span<const double> seconds, const Pace& pace,
                                    const RepeatedCalls& repeated);

}  // namespace headroom::timing
