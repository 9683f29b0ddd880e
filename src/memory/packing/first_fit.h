// First fit: items in a given order, each at the lowest place that is free in all of its sections.
//
// All heuristics of the synthesizer come down to an order for this. Every plan in which nothing can
// sink is first fit in some order (that of its offsets), so searching orders loses no plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/packing/occupancy.h"
#include "memory/packing/sections.h"

namespace headroom::memory {

struct Placement {
  std::vector<int64_t> offsets;  // by item
  int64_t height = 0;
};

// Places the items of `order` above what `occupancy` holds and sets their offsets; others stay.
// The height is that of the items placed. `occupancy` holds them afterwards.
void place_first_fit(const Sections& sections, std::span<const uint32_t> order,
                     Occupancy& occupancy, Placement& placement);

// The same for all items, into nothing. REQUIRES: `order` is a permutation of the items.
[[nodiscard]] Placement first_fit(const Sections& sections, std::span<const uint32_t> order);

}  // namespace headroom::memory
