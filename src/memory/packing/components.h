// Cutting a packing problem into parts that do not concern each other.
//
// An item that lives all through a part conflicts with everything in it, so it may lie at the
// bottom: nothing is lost. Where, without such items, a boundary between sections is crossed by
// nothing, the part falls into two. Both are repeated until neither applies: a step's weights go to
// the bottom, and its micro-batches, where they are separate, become parts of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/packing/sections.h"

namespace headroom::memory {

struct Component {
  std::vector<uint32_t> items;  // of the whole problem
  int64_t base = 0;             // what lies beneath: offsets of the part begin here
  uint32_t begin = 0;           // sections
  uint32_t end = 0;
};

// The parts that are left; `offsets` of items at the bottom are set. At most kMaxCuttingRounds
// passes over the items, so that items nested a million deep cost no more than that.
[[nodiscard]] std::vector<Component> cut_into_components(const Sections& sections,
                                                         std::vector<int64_t>& offsets);
inline constexpr int kMaxCuttingRounds = 64;

// A part as a problem of its own, with offsets from 0: item i is component.items[i].
[[nodiscard]] Sections sections_of(const Sections& whole, const Component& component);

}  // namespace headroom::memory
