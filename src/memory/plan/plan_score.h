// How good is a plan for iterations that it was perhaps not made from: they are served from it, one
// request after the other, and what it has no room for goes to PyTorch's allocator.
//
// A microsecond or two a request. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "memory/plan/memory_plan.h"
#include "memory/plan/plan_maker.h"

namespace headroom::memory {

struct PlanScore {
  size_t iterations = 0;
  size_t requests = 0;
  size_t planned = 0;  // in their slots
  size_t reused = 0;   // in dynamic reusable space
  size_t fallen_back = 0;
  int64_t peak_allocated_bytes = 0;  // sizes rounded up, with all that is persistent
  int64_t plan_bytes = 0;
  int64_t fallback_bytes = 0;  // the most that PyTorch's allocator reserved for the rest

  // Of what was reserved, so much was in use at the highest moment.
  [[nodiscard]] double efficiency() const {
    const int64_t reserved = plan_bytes + fallback_bytes;
    return reserved == 0
               ? 0
               : static_cast<double>(peak_allocated_bytes) / static_cast<double>(reserved);
  }
  [[nodiscard]] double share(size_t count) const {
    return requests == 0 ? 0 : static_cast<double>(count) / static_cast<double>(requests);
  }
};

// More iterations than this are not served but so many of them, evenly spread.
inline constexpr size_t kMostScored = 256;

// REQUIRES: `iterations` in order; the plan was made from this recording (its streams are).
[[nodiscard]] PlanScore score_plan(const UnderstoodRecording& recording, const MemoryPlan& plan,
                                   std::span<const uint32_t> iterations);

// How many iterations of a kind the plan that is scored is made from: as many as a runtime would
// record before it plans.
inline constexpr size_t kPlannedFrom = 3;

// A plan made from the first kPlannedFrom iterations of each kind, or one less than there are,
// scored on all others. Nothing where no kind has two.
[[nodiscard]] std::optional<PlanScore> score_held_out(const UnderstoodRecording& recording,
                                                      const PlanOptions& options);

}  // namespace headroom::memory
