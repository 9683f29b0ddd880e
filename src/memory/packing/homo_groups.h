// HomoPhase and HomoSize groups: requests that come and go together, planned as one.
//
// A pass over a micro-batch makes and releases its tensors together, and the next micro-batch does
// the same again. So requests that begin in one phase and end in one phase form a HomoPhase group,
// which is planned by itself; where micro-batches repeat, so do their groups and their plans.
// Groups of one height form a HomoSize group. The largest go first, each HomoSize group in the
// order of its beginnings, so that they take turns in the same addresses: memory layers, of whole
// groups.
//
// Unlike in the paper, phases are not told by the framework: they are the stretches over which the
// load goes up or down by more than a share of its highest. And a group's box is not kept closed:
// its requests are placed one by one in the group's order, so what is smaller finds the room that a
// larger group leaves open at either end, which is what the paper fuses groups for.
//
// Cost: two rounds of first fit.
//
// Source: STAlloc (arXiv 2507.16274), section 5: groups by phase, by size, memory layers.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/packing/first_fit.h"
#include "memory/packing/sections.h"

namespace headroom::memory {

struct HomoPhaseGroup {
  uint32_t first_phase = 0;  // in which all of its items begin
  uint32_t last_phase = 0;   // in which all of them end
  uint32_t begin = 0;        // sections
  uint32_t end = 0;
  std::vector<uint32_t> items;  // by their beginnings
  Placement plan;               // of its items alone, in their order
};

struct HomoSizeGroup {
  int64_t height = 0;
  std::vector<uint32_t> groups;  // HomoPhase groups, by their beginnings
};

// By section: the number of the phase that it lies in. A turn of less than `share` of the highest
// load is no turn.
[[nodiscard]] std::vector<uint32_t> phases_of(const Sections& sections, double share);
[[nodiscard]] std::vector<HomoPhaseGroup> homo_phase_groups(const Sections& sections, double share);
// The highest first.
[[nodiscard]] std::vector<HomoSizeGroup> homo_size_groups(
    const std::vector<HomoPhaseGroup>& groups);

// A permutation of the items for first fit: group by group.
[[nodiscard]] std::vector<uint32_t> homo_group_order(const Sections& sections, double share);

}  // namespace headroom::memory
