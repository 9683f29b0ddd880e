// A recording of our own as a snapshot: its events as a trace, and the end state that they lead to,
// which a snapshot has and a recording has not.
#include <algorithm>
#include <iterator>
#include <map>

#include "base/units.h"
#include "memory/recording/reader.h"

namespace headroom::memory {
namespace {

TraceAction action_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::alloc:
      return TraceAction::alloc;
    case RecordKind::free_requested:
      return TraceAction::free_requested;
    case RecordKind::free_completed:
      return TraceAction::free_completed;
    case RecordKind::segment_alloc:
      return TraceAction::segment_alloc;
    case RecordKind::segment_free:
      return TraceAction::segment_free;
    case RecordKind::segment_map:
      return TraceAction::segment_map;
    case RecordKind::segment_unmap:
      return TraceAction::segment_unmap;
    case RecordKind::out_of_memory:
      return TraceAction::out_of_memory;
    default:
      return TraceAction::other;
  }
}

// What is held from the driver, and what lives, after all events.
class EndState {
 public:
  void apply(const TraceEntry& entry) {
    switch (entry.action) {
      case TraceAction::segment_alloc:
      case TraceAction::segment_map:
        hold(entry);
        break;
      case TraceAction::segment_free:
      case TraceAction::segment_unmap:
        give_back(entry.address, entry.size);
        break;
      case TraceAction::alloc:
        live_[entry.address] = entry;
        break;
      case TraceAction::free_completed:
        live_.erase(entry.address);
        break;
      default:
        break;
    }
  }

  std::vector<SnapshotSegment> segments() {
    for (const auto& [address, entry] : live_) place(entry);
    std::vector<SnapshotSegment> segments;
    for (auto& [address, segment] : held_) segments.push_back(std::move(segment));
    return segments;
  }

 private:
  void hold(const TraceEntry& entry) {
    SnapshotSegment segment;
    segment.address = entry.address;
    segment.total_size = entry.size;
    segment.stream = entry.stream;
    segment.is_small = entry.size <= kSmallBuffer;
    segment.is_expandable = entry.action == TraceAction::segment_map;
    segment.stack = entry.stack;
    held_[entry.address] = std::move(segment);
  }

  // All of one segment, or a part of several that were mapped one by one.
  void give_back(int64_t address, int64_t size) {
    const auto end = checked_add(address, size);
    if (!end) return;
    auto at = held_.upper_bound(address);
    if (at != held_.begin()) --at;
    while (at != held_.end() && at->first < *end) {
      SnapshotSegment segment = at->second;
      const auto segment_end = checked_add(segment.address, segment.total_size);
      if (!segment_end || *segment_end <= address) {
        ++at;
        continue;
      }
      at = held_.erase(at);
      if (segment.address < address) {
        SnapshotSegment before = segment;
        before.total_size = address - segment.address;
        held_[before.address] = before;
      }
      if (*segment_end > *end) {
        segment.address = *end;
        segment.total_size = *segment_end - *end;
        held_[segment.address] = segment;
      }
    }
  }

  void place(const TraceEntry& entry) {
    auto at = held_.upper_bound(entry.address);
    if (at == held_.begin()) return;
    SnapshotSegment& segment = std::prev(at)->second;
    if (entry.address - segment.address >= segment.total_size) return;
    SnapshotBlock block;
    block.address = entry.address;
    block.requested = entry.size;
    block.size =
        (entry.size / kMinBlockSize + (entry.size % kMinBlockSize != 0 ? 1 : 0)) * kMinBlockSize;
    block.state = BlockState::allocated;
    block.stack = entry.stack;
    segment.allocated_size = checked_add(segment.allocated_size, block.size).value_or(0);
    segment.active_size = segment.allocated_size;
    segment.blocks.push_back(std::move(block));
  }

  std::map<int64_t, SnapshotSegment> held_;  // by address
  std::map<int64_t, TraceEntry> live_;
};

}  // namespace

Snapshot snapshot_of(const RunRecording& recording) {
  Snapshot snapshot;
  snapshot.device = recording.device;
  snapshot.trace.reserve(recording.events.size());
  EndState end_state;
  for (const RecordingSlot& event : recording.events) {
    TraceEntry entry;
    entry.action = action_of(event.kind);
    entry.time_us = event.time_ns / 1000;
    if (entry.action != TraceAction::other) {
      entry.address = event.address;
      entry.size = event.size;
      entry.stream = recording.streams[event.stream];
      entry.stack = event.stack;
    }
    snapshot.trace.push_back(entry);
    end_state.apply(entry);
  }
  snapshot.segments = end_state.segments();
  return snapshot;
}

}  // namespace headroom::memory
