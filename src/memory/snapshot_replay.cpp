#include "memory/snapshot_replay.h"

#include <algorithm>
#include <span>
#include <unordered_map>

#include "base/check.h"

namespace headroom::memory {
namespace {

bool is_segment_action(TraceAction action) {
  return action == TraceAction::segment_alloc || action == TraceAction::segment_free ||
         action == TraceAction::segment_map || action == TraceAction::segment_unmap;
}
bool is_release(TraceAction action) {
  return action == TraceAction::segment_free || action == TraceAction::segment_unmap;
}

// The driver that the trace remembers. It gives the addresses that the next recorded segment events
// have, is out of memory where they release something first, and notes the first call that they do
// not hold.
class RecordedDriver final : public SegmentSource {
 public:
  explicit RecordedDriver(int64_t total_bytes) : total_(total_bytes) {}

  void expect(std::span<const TraceEntry> events, size_t first_entry) {
    events_ = events;
    first_entry_ = first_entry;
    next_ = 0;
  }
  [[nodiscard]] size_t reproduced() const { return next_; }
  [[nodiscard]] bool is_done() const { return next_ == events_.size(); }
  [[nodiscard]] const std::optional<Divergence>& divergence() const { return divergence_; }

  std::optional<int64_t> allocate(const SegmentRequest& request) override {
    const TraceEntry* const event = next_event(TraceAction::segment_alloc, request.bytes);
    if (event == nullptr) return std::nullopt;
    if (event->size != request.bytes) {
      diverge("a segment of another size", event->size, request.bytes);
      return std::nullopt;
    }
    ++next_;
    return event->address;
  }
  void release(int64_t address, int64_t bytes) override {
    pass(TraceAction::segment_free, address, bytes);
  }
  // Reserving leaves no trace; the first mapping tells where.
  std::optional<int64_t> reserve(const SegmentRequest& request) override {
    const TraceEntry* const event = next_event(TraceAction::segment_map, request.bytes);
    if (event == nullptr) return std::nullopt;
    return event->address;
  }
  void unreserve(int64_t /*address*/, int64_t /*bytes*/) override {}
  bool map(int64_t address, int64_t bytes) override {
    const TraceEntry* const event = next_event(TraceAction::segment_map, bytes);
    if (event == nullptr) return false;
    if (event->address != address || event->size != bytes) {
      diverge("memory mapped elsewhere", event->address, address);
      return false;
    }
    ++next_;
    return true;
  }
  void unmap(int64_t address, int64_t bytes) override {
    pass(TraceAction::segment_unmap, address, bytes);
  }
  [[nodiscard]] int64_t total_bytes() const override { return total_; }
  [[nodiscard]] int64_t free_bytes() const override { return 0; }

 private:
  // The next recorded event where it is of this kind; nothing where memory is out, or was never
  // asked for.
  const TraceEntry* next_event(TraceAction action, int64_t bytes) {
    if (is_done()) {
      if (!may_fail_) diverge("memory from the driver that the record does not have", 0, bytes);
      return nullptr;
    }
    const TraceEntry& event = events_[next_];
    if (event.action == action) return &event;
    if (!is_release(event.action)) diverge("another kind of segment event", event.size, bytes);
    return nullptr;
  }
  void pass(TraceAction action, int64_t address, int64_t bytes) {
    if (is_done()) {
      diverge("a segment is released that the record keeps", 0, address);
    } else if (events_[next_].action != action || events_[next_].address != address ||
               events_[next_].size != bytes) {
      diverge("another segment event", events_[next_].address, address);
    } else {
      ++next_;
    }
  }
  void diverge(std::string message, int64_t recorded, int64_t simulated) {
    if (!divergence_) {
      divergence_ = Divergence{first_entry_ + next_, std::move(message), recorded, simulated};
    }
  }

 public:
  // Whether an allocation may find no memory: where the record says out of memory.
  void set_may_fail(bool may_fail) { may_fail_ = may_fail; }

 private:
  int64_t total_;
  std::span<const TraceEntry> events_;
  size_t first_entry_ = 0;
  size_t next_ = 0;
  bool may_fail_ = false;
  std::optional<Divergence> divergence_;
};

class SnapshotPlayer {
 public:
  SnapshotPlayer(const Snapshot& snapshot, const SnapshotReplayOptions& options)
      : snapshot_(snapshot),
        start_(infer_start(snapshot, options.settings, options.device_total_bytes)),
        driver_(options.device_total_bytes),
        allocator_(options.settings, driver_) {}

  SnapshotReplay run() {
    result_.entries = snapshot_.trace.size();
    result_.contradictions = std::move(start_.contradictions);
    result_.assumed_sizes = start_.assumed_sizes;
    result_.skipped_entries =
        static_cast<size_t>(std::count(start_.skipped.begin(), start_.skipped.end(), true));
    adopt_start();
    size_t i = 0;
    while (i < snapshot_.trace.size() && !result_.divergence) i = play(i);
    if (!result_.divergence) compare_end();
    result_.statistics = allocator_.statistics();
    return std::move(result_);
  }

 private:
  void diverge(size_t entry, std::string message, int64_t recorded, int64_t simulated) {
    if (!result_.divergence) {
      result_.divergence = Divergence{entry, std::move(message), recorded, simulated};
    }
  }
  void contradict(size_t entry, int64_t address, std::string message) {
    result_.contradictions.push_back({entry, address, std::move(message)});
  }

  void adopt_start() {
    for (const SegmentImage& image : start_.segments) {
      const auto ids = allocator_.adopt(image);
      if (!ids) {
        contradict(Contradiction::kEndState, image.address, ids.error().to_string());
        continue;
      }
      int64_t address = image.address;
      for (size_t i = 0; i < image.blocks.size(); ++i) {
        const BlockState state = image.blocks[i].state;
        if (state == BlockState::allocated || state == BlockState::pending) {
          live_[address] = {(*ids)[i], state == BlockState::pending};
        }
        address += image.blocks[i].size;
      }
    }
    note_peaks(0);
  }

  // Plays one entry together with the segment events before it; returns the next position.
  size_t play(size_t first) {
    size_t at = first;
    std::vector<TraceEntry>& segment_events = segment_events_;
    segment_events.clear();
    while (at < snapshot_.trace.size() &&
           (is_segment_action(snapshot_.trace[at].action) || start_.skipped[at])) {
      if (!start_.skipped[at]) segment_events.push_back(snapshot_.trace[at]);
      ++at;
    }
    result_.segment_events += segment_events.size();
    driver_.expect(segment_events, first);
    const TraceEntry* const entry = at < snapshot_.trace.size() ? &snapshot_.trace[at] : nullptr;
    const bool is_request = entry != nullptr && (entry->action == TraceAction::alloc ||
                                                 entry->action == TraceAction::out_of_memory);
    if (!segment_events.empty() && starts_with_empty_cache(is_request ? entry : nullptr)) {
      allocator_.empty_cache();
    }
    if (entry != nullptr) play_entry(at, *entry);
    if (driver_.divergence()) {
      const Divergence& seen = *driver_.divergence();
      diverge(seen.entry, seen.message, seen.recorded, seen.simulated);
    } else if (!driver_.is_done()) {
      diverge(first + driver_.reproduced(), "a segment event that the simulator does not have",
              segment_events[driver_.reproduced()].address, 0);
    }
    result_.segment_events_reproduced += driver_.reproduced();
    note_peaks(at);
    return at + 1;
  }

  // Released segments mean that the program emptied its cache, unless a request follows: then they
  // may be its attempts before out-of-memory, or garbage collection, which the allocator repeats by
  // itself. Where they are all that could be released, both lead to the same state.
  bool starts_with_empty_cache(const TraceEntry* request) const {
    if (!is_release(segment_events_.front().action)) return false;
    if (request == nullptr) return true;
    const auto all = allocator_.releasable();
    if (all.size() > segment_events_.size()) return false;
    const bool are_the_same = std::equal(
        all.begin(), all.end(), segment_events_.begin(), [](const auto& range, const auto& event) {
          return is_release(event.action) && range == std::pair(event.address, event.size);
        });
    return are_the_same && (all.size() == segment_events_.size() ||
                            !is_release(segment_events_[all.size()].action));
  }

  void play_entry(size_t index, const TraceEntry& entry) {
    switch (entry.action) {
      case TraceAction::alloc:
        return play_alloc(index, entry);
      case TraceAction::free_requested:
        return play_free_requested(index, entry);
      case TraceAction::free_completed:
        return play_free_completed(index, entry);
      case TraceAction::out_of_memory:
        return play_out_of_memory(index, entry);
      case TraceAction::snapshot: {
        const int64_t active = allocator_.statistics().active_bytes.current;
        if (result_.skipped_entries == 0 && entry.size != active) {
          contradict(index, entry.address,
                     "the snapshot entry says " + std::to_string(entry.size) +
                         " bytes are active, the blocks say " + std::to_string(active));
        }
        return;
      }
      default:
        return;
    }
  }

  void play_alloc(size_t index, const TraceEntry& entry) {
    const auto allocation =
        allocator_.allocate(entry.size, stream_index(start_.streams, entry.stream));
    ++result_.allocations;
    if (driver_.divergence()) return;
    if (!allocation) return diverge(index, "out of memory", entry.address, 0);
    if (allocation->address != entry.address) {
      return diverge(index, "an allocation at another address", entry.address, allocation->address);
    }
    ++result_.at_their_address;
    live_[entry.address] = {allocation->block, false};
  }

  void play_free_requested(size_t index, const TraceEntry& entry) {
    const auto at = live_.find(entry.address);
    if (at == live_.end() || at->second.is_pending) {
      return contradict(index, entry.address, "releases what is not allocated");
    }
    allocator_.begin_free(at->second.block);
    at->second.is_pending = true;
  }

  void play_free_completed(size_t index, const TraceEntry& entry) {
    const auto at = live_.find(entry.address);
    if (at == live_.end() || !at->second.is_pending) {
      return contradict(index, entry.address, "completes a release that was not requested");
    }
    allocator_.finish_free(at->second.block);
    live_.erase(at);
  }

  // The entry has the rounded size and, as its address, the device's free memory.
  void play_out_of_memory(size_t index, const TraceEntry& entry) {
    driver_.set_may_fail(true);
    const auto allocation =
        allocator_.allocate(entry.size, stream_index(start_.streams, entry.stream));
    driver_.set_may_fail(false);
    if (allocation) diverge(index, "memory where the record has none", 0, allocation->address);
  }

  void note_peaks(size_t entry) {
    const AllocatorStatistics& now = allocator_.statistics();
    if (now.allocated_bytes.peak > result_.peak_allocated.bytes) {
      result_.peak_allocated = {now.allocated_bytes.peak, entry};
    }
    if (now.reserved_bytes.peak > result_.peak_reserved.bytes) {
      result_.peak_reserved = {now.reserved_bytes.peak, entry};
    }
  }

  // Every block with memory behind it, in address order.
  struct FlatBlock {
    int64_t address = 0;
    BlockImage block;
  };
  [[nodiscard]] std::vector<FlatBlock> simulated_blocks() const {
    std::vector<FlatBlock> blocks;
    for (const SegmentImage& image : allocator_.segments()) {
      int64_t address = image.address;
      for (const BlockImage& block : image.blocks) {
        if (block.state != BlockState::unmapped) blocks.push_back({address, block});
        address += block.size;
      }
    }
    return blocks;
  }
  [[nodiscard]] std::vector<FlatBlock> recorded_blocks() const {
    std::vector<FlatBlock> blocks;
    for (const SnapshotSegment& segment : snapshot_.segments) {
      if (segment.pool_first != 0 || segment.pool_second != 0) continue;
      for (const SnapshotBlock& block : segment.blocks) {
        blocks.push_back({block.address, {block.size, block.requested, block.state}});
      }
    }
    std::sort(blocks.begin(), blocks.end(),
              [](const FlatBlock& a, const FlatBlock& b) { return a.address < b.address; });
    return blocks;
  }

  void compare_end() {
    const std::vector<FlatBlock> simulated = simulated_blocks();
    const std::vector<FlatBlock> recorded = recorded_blocks();
    result_.blocks_at_end = recorded.size();
    const size_t end = snapshot_.trace.size();
    for (size_t i = 0; i < std::max(simulated.size(), recorded.size()); ++i) {
      if (i >= simulated.size()) return diverge(end, "a block is missing", recorded[i].address, 0);
      if (i >= recorded.size()) return diverge(end, "a block too many", 0, simulated[i].address);
      const FlatBlock& ours = simulated[i];
      const FlatBlock& theirs = recorded[i];
      if (ours.address != theirs.address) {
        return diverge(end, "a block at another address", theirs.address, ours.address);
      }
      if (ours.block.size != theirs.block.size) {
        return diverge(end, "the block at " + std::to_string(ours.address) + " has another size",
                       theirs.block.size, ours.block.size);
      }
      const bool is_active = theirs.block.state != BlockState::free;
      if (is_active && ours.block.requested != theirs.block.requested) {
        return diverge(end,
                       "the block at " + std::to_string(ours.address) + " was requested otherwise",
                       theirs.block.requested, ours.block.requested);
      }
      if (ours.block.state != theirs.block.state) {
        return diverge(end, "the block at " + std::to_string(ours.address) + " is in another state",
                       static_cast<int64_t>(theirs.block.state),
                       static_cast<int64_t>(ours.block.state));
      }
    }
  }

  struct LiveBlock {
    BlockId block = kNoBlock;
    bool is_pending = false;
  };

  const Snapshot& snapshot_;
  StartState start_;
  RecordedDriver driver_;
  CachingAllocator allocator_;
  std::unordered_map<int64_t, LiveBlock> live_;
  std::vector<TraceEntry> segment_events_;
  SnapshotReplay result_;
};

}  // namespace

bool SnapshotReplay::is_exact() const {
  return !divergence && contradictions.empty() && at_their_address == allocations &&
         segment_events_reproduced == segment_events;
}

SnapshotReplay replay_snapshot(const Snapshot& snapshot, const SnapshotReplayOptions& options) {
  return SnapshotPlayer(snapshot, options).run();
}

}  // namespace headroom::memory
