// Making DynamicReusableSpace: for the requests of an iteration that have no slot, the planned
// addresses that are idle for as long as they live.
//
// Requests that come before the same slot and are gone before the same slot share a space: these
// are STAlloc's HomoLayer groups (arXiv 2507.16274, section 5.3), with slots in the place of
// layers. Where there would be too many spaces, their phases are widened until there are not.
// O(spaces times slots), bounded by kMostSpaceTests.
#pragma once

#include <cstdint>
#include <span>

#include "memory/plan/memory_plan.h"

namespace headroom::memory {

// One request without a slot, in one iteration.
struct DynamicSighting {
  uint32_t stream = 0;
  uint32_t before = 0;  // the slot that begins next
  uint32_t rank = 0;    // among those before the same slot, in this iteration
  uint32_t ends = 0;    // it is gone before this slot begins; the number of slots: at the end
};

// Fills spaces and places of `signature` from what was seen in all its iterations.
// REQUIRES: slots and their offsets are final. `arenas`: of each stream. At most kMostSignatures
// signatures of one plan keep to kMostSpaceTests together.
void make_dynamic_spaces(std::span<const DynamicSighting> sightings,
                         std::span<const AddressRange> arenas, int64_t alignment,
                         SignaturePlan& signature);

}  // namespace headroom::memory
