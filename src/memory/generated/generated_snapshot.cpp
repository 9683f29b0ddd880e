#include "memory/generated/generated_snapshot.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "memory/caching_allocator.h"

namespace headroom::memory::generated {
namespace {

constexpr int64_t kSideStream = 0x5581'0000'4000;  // a pointer, as torch's stream handles are
constexpr int64_t kFirstTime = 1'700'000'000'000'000;
constexpr int64_t kTimeStep = 7;

int64_t handle_of(uint32_t stream) { return stream == 0 ? 0 : kSideStream + stream * 4096; }

// The recording's end of the driver: hands out memory without end and writes down every call.
class RecordingDevice final : public SegmentSource {
 public:
  explicit RecordingDevice(std::vector<TraceEntry>& entries) : entries_(entries) {}
  void set_cause(const TraceEntry& cause) { cause_ = cause; }

  std::optional<int64_t> allocate(const SegmentRequest& request) override {
    const auto address = device_.allocate(request);
    if (address) note(TraceAction::segment_alloc, *address, request.bytes);
    return address;
  }
  void release(int64_t address, int64_t bytes) override {
    note(TraceAction::segment_free, address, bytes);
    device_.release(address, bytes);
  }
  std::optional<int64_t> reserve(const SegmentRequest& request) override {
    return device_.reserve(request);
  }
  void unreserve(int64_t address, int64_t bytes) override { device_.unreserve(address, bytes); }
  bool map(int64_t address, int64_t bytes) override {
    note(TraceAction::segment_map, address, bytes);
    return device_.map(address, bytes);
  }
  void unmap(int64_t address, int64_t bytes) override {
    note(TraceAction::segment_unmap, address, bytes);
    device_.unmap(address, bytes);
  }
  [[nodiscard]] int64_t total_bytes() const override { return kTotal; }
  [[nodiscard]] int64_t free_bytes() const override { return device_.free_bytes(); }

 private:
  static constexpr int64_t kTotal = 96 * kGiB;

  void note(TraceAction action, int64_t address, int64_t bytes) {
    TraceEntry entry = cause_;
    entry.action = action;
    entry.address = address;
    entry.size = bytes;
    entries_.push_back(entry);
  }

  std::vector<TraceEntry>& entries_;
  TraceEntry cause_;
  DeviceMemory device_;
};

class Recorder {
 public:
  Recorder(const MemoryTrace& trace, const SnapshotOptions& options)
      : trace_(trace),
        options_(options),
        device_(entries_),
        allocator_(options.settings, device_),
        allocations_(trace.buffers.size()) {
    result_.entry_of_event.assign(trace.events.size(), kNotRecorded);
  }

  GeneratedSnapshot record() {
    const size_t end = std::min(options_.last_event, trace_.events.size());
    for (size_t i = 0; i < end; ++i) {
      if (i == options_.first_event) entries_.clear();
      apply(i);
    }
    if (end <= options_.first_event) entries_.clear();
    keep_last();
    for (size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].time_us = kFirstTime + kTimeStep * static_cast<int64_t>(i);
    }
    show_segments();
    result_.snapshot.trace = std::move(entries_);
    return std::move(result_);
  }

 private:
  struct Pending {
    size_t due = 0;  // event
    uint32_t buffer = 0;
  };

  void apply(size_t index) {
    const MemoryEvent& event = trace_.events[index];
    const BufferInfo& info = trace_.buffers[event.buffer];
    if (info.requested_bytes == 0) return;
    if (event.kind == EventKind::alloc) {
      finish_until(index);
      device_.set_cause(entry_of(TraceAction::alloc, event.buffer));
      const auto made = allocator_.allocate(info.requested_bytes, info.stream);
      HEADROOM_CHECK(made, "a generated run that no device holds");
      allocations_[event.buffer] = *made;
      live_[made->address] = event.buffer;
      write(index, TraceAction::alloc, event.buffer);
      return;
    }
    write(index, TraceAction::free_requested, event.buffer);
    allocator_.begin_free(allocations_[event.buffer].block);
    const uint32_t delay =
        options_.release_delay.empty() ? 0 : options_.release_delay[event.buffer];
    if (delay == 0) return finish(event.buffer);
    pending_.push_back({index + delay, event.buffer});
  }

  void finish_until(size_t index) {
    const auto is_due = [&](const Pending& pending) { return pending.due <= index; };
    for (const Pending& pending : pending_) {
      if (is_due(pending)) finish(pending.buffer);
    }
    std::erase_if(pending_, is_due);
  }
  void finish(uint32_t buffer) {
    entries_.push_back(entry_of(TraceAction::free_completed, buffer));
    allocator_.finish_free(allocations_[buffer].block);
    live_.erase(allocations_[buffer].address);
  }

  [[nodiscard]] TraceEntry entry_of(TraceAction action, uint32_t buffer) const {
    const BufferInfo& info = trace_.buffers[buffer];
    TraceEntry entry;
    entry.action = action;
    entry.address = allocations_[buffer].address;
    entry.size = info.requested_bytes;
    entry.stream = handle_of(info.stream);
    entry.stack = info.label;
    return entry;
  }
  void write(size_t index, TraceAction action, uint32_t buffer) {
    if (index >= options_.first_event) result_.entry_of_event[index] = entries_.size();
    entries_.push_back(entry_of(action, buffer));
  }

  void keep_last() {
    if (entries_.size() <= options_.keep_entries) return;
    const size_t dropped = entries_.size() - options_.keep_entries;
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(dropped));
    for (size_t& entry : result_.entry_of_event) {
      if (entry != kNotRecorded) entry = entry < dropped ? kNotRecorded : entry - dropped;
    }
  }

  // One segment for each run of memory: expandable ones have gaps without any.
  void show_segments() {
    for (const SegmentImage& image : allocator_.segments()) {
      int64_t address = image.address;
      bool is_open = false;
      for (const BlockImage& block : image.blocks) {
        if (block.state == BlockState::unmapped) {
          is_open = false;
        } else {
          if (!is_open) open_segment(image, address);
          is_open = true;
          show_block(block, address);
        }
        address += block.size;
      }
    }
  }
  void open_segment(const SegmentImage& image, int64_t address) {
    SnapshotSegment segment;
    segment.address = address;
    segment.stream = handle_of(image.stream);
    segment.is_small = image.is_small;
    segment.is_expandable = image.is_expandable;
    result_.snapshot.segments.push_back(std::move(segment));
  }
  void show_block(const BlockImage& block, int64_t address) {
    SnapshotSegment& segment = result_.snapshot.segments.back();
    segment.total_size += block.size;
    if (block.state == BlockState::allocated) segment.allocated_size += block.size;
    if (block.state != BlockState::free) segment.active_size += block.size;
    const auto owner = live_.find(address);
    const uint32_t stack = owner == live_.end() ? 0 : trace_.buffers[owner->second].label;
    segment.blocks.push_back({address, block.size, block.requested, block.state, stack, {}});
  }

  const MemoryTrace& trace_;
  const SnapshotOptions& options_;
  std::vector<TraceEntry> entries_;
  RecordingDevice device_;
  CachingAllocator allocator_;
  std::vector<Allocation> allocations_;  // by buffer
  std::map<int64_t, uint32_t> live_;     // buffer by address
  std::vector<Pending> pending_;
  GeneratedSnapshot result_;
};

}  // namespace

GeneratedSnapshot record_snapshot(const MemoryTrace& trace, const SnapshotOptions& options) {
  return Recorder(trace, options).record();
}

}  // namespace headroom::memory::generated
