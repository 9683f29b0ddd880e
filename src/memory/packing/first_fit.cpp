#include "memory/packing/first_fit.h"

#include <algorithm>

namespace headroom::memory {

void place_first_fit(const Sections& sections, std::span<const uint32_t> order,
                     Occupancy& occupancy, Placement& placement) {
  placement.height = 0;
  for (const uint32_t i : order) {
    const PackingItem& item = sections.items[i];
    const int64_t offset = occupancy.lowest_fit(item.begin, item.end, item.size);
    occupancy.take(item.begin, item.end, offset, item.size);
    placement.offsets[i] = offset;
    placement.height = std::max(placement.height, offset + item.size);
  }
}

Placement first_fit(const Sections& sections, std::span<const uint32_t> order) {
  Placement placement;
  placement.offsets.resize(sections.items.size());
  Occupancy occupancy(sections.count());
  place_first_fit(sections, order, occupancy, placement);
  return placement;
}

}  // namespace headroom::memory
