#include "memory/replay.h"

#include "base/check.h"
#include "memory/replay_composition.h"

namespace headroom::memory {
namespace {

void raise(Peak& peak, const Statistic& statistic, size_t event) {
  if (statistic.peak > peak.bytes) peak = {statistic.peak, event};
}

constexpr uint32_t kNoStream = UINT32_MAX;

// Empty where no stream uses another's buffers.
std::vector<uint32_t> streams_by_buffer(const MemoryTrace& trace) {
  std::vector<uint32_t> streams;
  if (trace.stream_uses.empty()) return streams;
  streams.resize(trace.buffers.size(), kNoStream);
  for (const StreamUse& use : trace.stream_uses) streams[use.buffer] = use.stream;
  return streams;
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
  auto next_emptied = trace.cache_emptied.begin();
  const std::vector<uint32_t> used_by = streams_by_buffer(trace);
  auto progress = trace.stream_progress.begin();
  for (; done < trace.events.size(); ++done) {
    for (; next_emptied != trace.cache_emptied.end() && *next_emptied <= done; ++next_emptied) {
      allocator.empty_cache();
    }
    for (; progress != trace.stream_progress.end() && progress->event <= done; ++progress) {
      allocator.complete_events(progress->stream, progress->count);
    }
    const MemoryEvent& event = trace.events[done];
    HEADROOM_CHECK(event.buffer < blocks.size(), "event of an unknown buffer");
    if (event.kind == EventKind::free) {
      if (blocks[event.buffer] == kNoBlock) continue;  // of zero bytes
      if (event.buffer < used_by.size() && used_by[event.buffer] != kNoStream) {
        allocator.record_stream(blocks[event.buffer], used_by[event.buffer]);
      }
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
