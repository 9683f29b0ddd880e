#include "memory/replay_composition.h"

#include <algorithm>

namespace headroom::memory {

std::vector<TimelinePoint> make_timeline(const MemoryTrace& trace, size_t event_count,
                                         const std::vector<int64_t>& block_sizes,
                                         const std::vector<ReservedChange>& reserved,
                                         size_t points) {
  std::vector<TimelinePoint> timeline;
  const size_t stretch = std::max<size_t>(1, (event_count + points - 1) / points);
  Composition composition(trace, block_sizes);
  int64_t reserved_bytes = 0;
  size_t next_change = 0;
  int64_t highest = -1;
  for (size_t i = 0; i < event_count; ++i) {
    composition.apply(i);
    while (next_change < reserved.size() && reserved[next_change].event <= i) {
      reserved_bytes = reserved[next_change++].bytes;
    }
    if (i % stretch == 0) {
      timeline.emplace_back();
      highest = -1;
    }
    if (composition.total() > highest) {
      highest = composition.total();
      timeline.back() = {i, composition.bytes(), reserved_bytes};
    }
  }
  return timeline;
}

}  // namespace headroom::memory
