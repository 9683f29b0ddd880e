// Replaying a MemoryTrace under a plan that was made from this very trace: what a program would
// hold if each of its blocks lay where the plan says, instead of where the caching allocator finds
// room.
//
// What is never released (weights, optimizer states, workspaces) lies apart, beneath the rest, from
// the beginning on. The plan is what a few orders of first fit give (plan_synthesizer.h), to a
// thousandth of the bound or to what is asked for; the validator judges it. Streams get ranges of
// their own, and what another one uses (StreamUse) keeps its place until it comes back. About a
// microsecond a buffer. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/packing/problem.h"
#include "memory/replay.h"

namespace headroom::memory {

// The trace as a packing problem, request i being buffer i: times are indices of events, and what
// is never released lives at all of them. What another stream uses lives until it comes back
// (late_frees.h). Buffers of other streams than `stream` never live.
// REQUIRES: validate_trace(trace).
[[nodiscard]] PackingProblem packing_problem_of(const MemoryTrace& trace, uint32_t stream = 0);

struct PlannedReplayOptions {
  int64_t limit_bytes = kUnlimited;  // a plan above it is out of memory
  size_t timeline_points = 0;        // 0: no timeline
};

// `reserved` is the size of the plan, from the first event to the last, in the driver's pages of
// 2 MiB; `allocated` the blocks that live, rounded up to 512 bytes; `active` and `requested` count
// those, too, that have yet to come back. REQUIRES: validate_trace(trace), and sizes that add up to
// less than 2^60.
[[nodiscard]] ReplayResult replay_planned(const MemoryTrace& trace,
                                          const PlannedReplayOptions& options = {});

}  // namespace headroom::memory
