#include "memory/replay.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::memory {
namespace {

struct ReservedChange {
  size_t event = 0;
  int64_t bytes = 0;
};

void raise(Peak& peak, const Statistic& statistic, size_t event) {
  if (statistic.peak > peak.bytes) peak = {statistic.peak, event};
}

// Second pass, over the block sizes that the first one found: what was live when.
class Composition {
 public:
  Composition(const MemoryTrace& trace, const std::vector<int64_t>& block_sizes)
      : trace_(trace), block_sizes_(block_sizes) {}

  void apply(size_t event_index) {
    const MemoryEvent& event = trace_.events[event_index];
    const int64_t size = block_sizes_[event.buffer];
    const int64_t change = event.kind == EventKind::alloc ? size : -size;
    bytes_[static_cast<size_t>(trace_.buffers[event.buffer].category)] += change;
    total_ += change;
  }
  [[nodiscard]] const CategoryBytes& bytes() const { return bytes_; }
  [[nodiscard]] int64_t total() const { return total_; }

 private:
  const MemoryTrace& trace_;
  const std::vector<int64_t>& block_sizes_;
  CategoryBytes bytes_{};
  int64_t total_ = 0;
};

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

}  // namespace

ReplayResult replay(const MemoryTrace& trace, const AllocatorSettings& settings,
                    SegmentSource& source, const ReplayOptions& options) {
  ReplayResult result;
  CachingAllocator allocator(settings, source);
  const AllocatorStatistics& now = allocator.statistics();
  std::vector<BlockId> blocks(trace.buffers.size(), kNoBlock);
  std::vector<int64_t> block_sizes(trace.buffers.size(), 0);
  std::vector<ReservedChange> reserved;
  int64_t last_reserved = 0;
  size_t done = 0;
  for (; done < trace.events.size(); ++done) {
    const MemoryEvent& event = trace.events[done];
    HEADROOM_CHECK(event.buffer < blocks.size(), "event of an unknown buffer");
    if (event.kind == EventKind::free) {
      if (blocks[event.buffer] == kNoBlock) continue;  // of zero bytes
      allocator.free(blocks[event.buffer]);
      continue;
    }
    const BufferInfo& buffer = trace.buffers[event.buffer];
    if (buffer.requested_bytes == 0) continue;
    const auto allocation = allocator.allocate(buffer.requested_bytes, buffer.stream);
    if (now.reserved_bytes.current != last_reserved) {
      last_reserved = now.reserved_bytes.current;
      reserved.push_back({done, last_reserved});
      raise(result.peak_reserved, now.reserved_bytes, done);
    }
    if (!allocation) {
      result.out_of_memory = ReplayOutOfMemory{done, *allocator.last_out_of_memory()};
      break;
    }
    blocks[event.buffer] = allocation->block;
    block_sizes[event.buffer] = allocation->size;
    raise(result.peak_allocated, now.allocated_bytes, done);
    raise(result.peak_requested, now.requested_bytes, done);
    raise(result.peak_active, now.active_bytes, done);
  }
  result.statistics = now;
  Composition composition(trace, block_sizes);
  for (size_t i = 0; i < done && i <= result.peak_allocated.event; ++i) composition.apply(i);
  result.at_peak_allocated = composition.bytes();
  if (options.timeline_points > 0) {
    result.timeline = make_timeline(trace, done, block_sizes, reserved, options.timeline_points);
  }
  return result;
}

}  // namespace headroom::memory
