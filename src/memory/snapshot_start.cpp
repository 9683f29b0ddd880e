#include "memory/snapshot_start.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/units.h"

namespace headroom::memory {
namespace {

constexpr size_t kMaxContradictions = 1000;
constexpr int64_t kMaxAddress = int64_t{1} << 61;

struct Live {
  int64_t requested = 0;
  int64_t size = 0;
  BlockState state = BlockState::allocated;
  bool is_size_known = true;
  size_t released_at = 0;  // the entry that ends it, where its size is not known
};

struct Range {
  int64_t size = 0;
  int64_t stream = 0;  // handle
  bool is_small = false;
  bool is_expandable = false;
};

// The end state, checked and then taken back event by event.
class Rewind {
 public:
  Rewind(const Snapshot& snapshot, const AllocatorSettings& settings)
      : snapshot_(snapshot), settings_(settings) {}

  StartState run(int64_t device_total_bytes) {
    collect_streams();
    if (settings_.expandable_segments) collect_block_pools();
    load_end_state();
    start_.skipped.assign(snapshot_.trace.size(), false);
    for (size_t i = snapshot_.trace.size(); i-- > 0;) undo(i);
    settle_sizes();
    build_plain_segments();
    build_expandable_segments(device_total_bytes);
    return std::move(start_);
  }

 private:
  void contradict(size_t entry, int64_t address, std::string message) {
    if (start_.contradictions.size() < kMaxContradictions) {
      start_.contradictions.push_back({entry, address, std::move(message)});
    }
  }
  void contradict_end(int64_t address, std::string message) {
    contradict(Contradiction::kEndState, address, std::move(message));
  }

  void collect_streams() {
    std::vector<int64_t>& streams = start_.streams;
    for (const SnapshotSegment& segment : snapshot_.segments) streams.push_back(segment.stream);
    for (const TraceEntry& entry : snapshot_.trace) streams.push_back(entry.stream);
    // Handles are addresses: PyTorch orders them as unsigned numbers.
    std::sort(streams.begin(), streams.end(), [](int64_t a, int64_t b) {
      return static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
    });
    streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
  }

  void load_end_state() {
    for (const SnapshotSegment& segment : snapshot_.segments) {
      if (segment.total_size <= 0 || segment.total_size > kMaxRequest ||
          segment.address > kMaxAddress) {
        contradict_end(segment.address, "the segment's size or address is out of range");
        continue;
      }
      const bool is_private = segment.pool_first != 0 || segment.pool_second != 0;
      if (overlaps(is_private ? private_ : ranges_, segment.address, segment.total_size)) {
        contradict_end(segment.address, "the segment overlaps another");
        continue;
      }
      auto& target = is_private ? private_ : ranges_;
      target[segment.address] = {segment.total_size, segment.stream, segment.is_small,
                                 segment.is_expandable};
      if (!is_private) load_blocks(segment);
    }
  }

  void load_blocks(const SnapshotSegment& segment) {
    int64_t address = segment.address;
    int64_t allocated = 0;
    int64_t active = 0;
    const SnapshotBlock* previous = nullptr;
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.address != address || block.size <= 0 ||
          block.size > segment.address + segment.total_size - address) {
        contradict_end(block.address, "the block does not follow the one before it");
        return;
      }
      if (previous != nullptr && previous->state == BlockState::free &&
          block.state == BlockState::free) {
        contradict_end(block.address, "two free neighbours were not merged");
      }
      if (block.state != BlockState::free) {
        live_[block.address] = {
            .requested = block.requested, .size = block.size, .state = block.state};
        active += block.size;
        if (block.state == BlockState::allocated) allocated += block.size;
        const bool has_history = !block.history.empty();
        if (has_history && block.history.front() != std::pair(block.address, block.requested)) {
          contradict_end(block.address, "the newest entry of the block's history is another one");
        }
      }
      address += block.size;
      previous = &block;
    }
    if (address != segment.address + segment.total_size) {
      contradict_end(segment.address, "the blocks do not fill the segment");
    }
    if (allocated != segment.allocated_size || active != segment.active_size) {
      contradict_end(segment.address, "the blocks do not add up to the segment's sizes");
    }
  }

  static bool overlaps(const std::map<int64_t, Range>& ranges, int64_t address, int64_t size) {
    const auto after = ranges.lower_bound(address);
    if (after != ranges.end() && after->first < address + size) return true;
    if (after == ranges.begin()) return false;
    const auto before = std::prev(after);
    return before->first + before->second.size > address;
  }

  // The range that holds an address, or the end.
  static std::map<int64_t, Range>::const_iterator holder(const std::map<int64_t, Range>& ranges,
                                                         int64_t address) {
    auto at = ranges.upper_bound(address);
    if (at == ranges.begin()) return ranges.end();
    --at;
    return address < at->first + at->second.size ? at : ranges.end();
  }

  void undo(size_t index) {
    const TraceEntry& entry = snapshot_.trace[index];
    if (holder(private_, entry.address) != private_.end()) {
      start_.skipped[index] = true;
      return;
    }
    switch (entry.action) {
      case TraceAction::alloc:
        return undo_alloc(index, entry);
      case TraceAction::free_requested:
        return undo_free_requested(index, entry);
      case TraceAction::free_completed:
        return undo_free_completed(index, entry);
      case TraceAction::segment_alloc:
        return undo_segment_alloc(index, entry);
      case TraceAction::segment_free:
        return undo_segment_free(index, entry);
      case TraceAction::segment_map:
        return unmap_pages(index, entry);
      case TraceAction::segment_unmap:
        return map_pages(index, entry);
      case TraceAction::snapshot:
      case TraceAction::out_of_memory:
      case TraceAction::other:
        return;
    }
  }

  void undo_alloc(size_t index, const TraceEntry& entry) {
    const auto at = live_.find(entry.address);
    if (at == live_.end()) {
      contradict(index, entry.address, "allocated here, but afterwards nothing is allocated there");
      return;
    }
    if (at->second.requested != entry.size) {
      contradict(index, entry.address, "the size differs from that of the block afterwards");
    }
    if (at->second.state == BlockState::pending) {
      contradict(index, entry.address, "the block's release was completed, but never requested");
    }
    live_.erase(at);
  }

  void undo_free_requested(size_t index, const TraceEntry& entry) {
    const auto at = live_.find(entry.address);
    if (at == live_.end()) {
      contradict(index, entry.address,
                 "released here, but afterwards neither completed nor pending");
      live_[entry.address] = {entry.size, 0, BlockState::allocated, false, index};
      return;
    }
    if (at->second.state != BlockState::pending) {
      contradict(index, entry.address, "released here, but still allocated afterwards");
    }
    if (at->second.requested != entry.size) {
      contradict(index, entry.address, "the size differs from that of the block afterwards");
    }
    at->second.state = BlockState::allocated;
  }

  void undo_free_completed(size_t index, const TraceEntry& entry) {
    if (live_.contains(entry.address)) {
      contradict(index, entry.address, "released here, but still in use afterwards");
      return;
    }
    if (holder(ranges_, entry.address) == ranges_.end()) {
      contradict(index, entry.address, "released here, but there is no segment at this address");
      return;
    }
    live_[entry.address] = {entry.size, 0, BlockState::pending, false, index};
  }

  void undo_segment_alloc(size_t index, const TraceEntry& entry) {
    const auto at = ranges_.find(entry.address);
    if (at == ranges_.end() || at->second.size != entry.size) {
      contradict(index, entry.address, "a new segment that is not there afterwards");
      return;
    }
    const auto block = live_.lower_bound(entry.address);
    if (block != live_.end() && block->first < entry.address + entry.size) {
      contradict(index, block->first, "a block that is older than its segment");
    }
    ranges_.erase(at);
  }

  void undo_segment_free(size_t index, const TraceEntry& entry) {
    if (!is_plausible(entry) || overlaps(ranges_, entry.address, entry.size)) {
      contradict(index, entry.address, "a released segment that is in use afterwards");
      return;
    }
    ranges_[entry.address] = {entry.size, entry.stream, entry.size == kSmallBuffer, false};
  }

  static bool is_plausible(const TraceEntry& entry) {
    return entry.size > 0 && entry.size <= kMaxRequest && entry.address <= kMaxAddress;
  }

  // Undoing a mapping: the pages leave the mapped range that holds them.
  void unmap_pages(size_t index, const TraceEntry& entry) {
    const auto found = holder(ranges_, entry.address);
    if (!is_plausible(entry) || found == ranges_.end() || !found->second.is_expandable ||
        entry.address + entry.size > found->first + found->second.size) {
      contradict(index, entry.address, "mapped memory that is not mapped afterwards");
      return;
    }
    const auto [start, range] = *found;
    expandable_seen_.push_back({start, range});
    ranges_.erase(found);
    if (entry.address > start) {
      Range before = range;
      before.size = entry.address - start;
      ranges_[start] = before;
    }
    const int64_t end = entry.address + entry.size;
    if (start + range.size > end) {
      Range after = range;
      after.size = start + range.size - end;
      ranges_[end] = after;
    }
  }

  void map_pages(size_t index, const TraceEntry& entry) {
    if (!is_plausible(entry) || overlaps(ranges_, entry.address, entry.size)) {
      contradict(index, entry.address, "unmapped memory that is mapped afterwards");
      return;
    }
    Range range{entry.size, entry.stream, is_small_page(entry), true};
    expandable_seen_.push_back({entry.address, range});
    // Neighbouring ranges are one to the allocator: a block may cross from one to the next.
    const auto joins = [&](const Range& other) {
      return other.is_expandable && other.stream == range.stream &&
             other.is_small == range.is_small;
    };
    int64_t start = entry.address;
    const auto next = ranges_.find(start + range.size);
    if (next != ranges_.end() && joins(next->second)) {
      range.size += next->second.size;
      ranges_.erase(next);
    }
    const auto after = ranges_.lower_bound(start);
    if (after != ranges_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second.size == start && joins(before->second)) {
        range.size += before->second.size;
        start = before->first;
      }
    }
    ranges_[start] = range;
  }

  // The pool of unmapped pages: that of any block which the trace has in them; else by their size,
  // since the large pool's pages come in multiples of 20 MiB.
  [[nodiscard]] bool is_small_page(const TraceEntry& entry) const {
    const auto at =
        std::lower_bound(block_pools_.begin(), block_pools_.end(), std::pair(entry.address, false));
    if (at != block_pools_.end() && at->first < entry.address + entry.size) return at->second;
    return entry.size % settings_.large_segment_size_bytes != 0;
  }

  void collect_block_pools() {
    for (const TraceEntry& entry : snapshot_.trace) {
      const bool is_block = entry.action == TraceAction::alloc ||
                            entry.action == TraceAction::free_requested ||
                            entry.action == TraceAction::free_completed;
      if (!is_block || entry.size > kMaxRequest) continue;
      block_pools_.emplace_back(entry.address, rounded_size(settings_, entry.size) <= kSmallSize);
    }
    std::sort(block_pools_.begin(), block_pools_.end());
  }

  // Sizes of the blocks whose allocation is older than the trace.
  void settle_sizes() {
    std::map<int64_t, int64_t> first_alloc_end;  // start of a block -> where its gap was entered
    for (auto& [address, block] : live_) {
      if (block.is_size_known) continue;
      if (block.requested < 0 || block.requested > kMaxRequest) block.requested = 0;
      block.size = rounded_size(settings_, block.requested);
    }
    find_gap_starts(first_alloc_end);
    for (auto at = live_.begin(); at != live_.end(); ++at) {
      Live& block = at->second;
      if (block.is_size_known) continue;
      const auto range = holder(ranges_, at->first);
      if (range == ranges_.end()) continue;
      const auto next = std::next(at);
      int64_t limit = range->first + range->second.size;
      if (next != live_.end()) limit = std::min(limit, next->first);
      const int64_t gap = limit - (at->first + block.size);
      if (gap <= 0 || range->second.is_small || settings_.expandable_segments) continue;
      const bool is_oversize = block.size >= settings_.max_split_size_bytes;
      if (gap <= kSmallSize || (is_oversize && gap < settings_.max_non_split_rounding_bytes)) {
        block.size += gap;
      } else if (const auto seen = first_alloc_end.find(at->first); seen != first_alloc_end.end()) {
        block.size = seen->second - at->first;
      } else {
        ++start_.assumed_sizes;
      }
    }
  }

  // An allocation takes the front of a free block. So the first one into the gap behind a block of
  // unknown size, while that block lives, shows where the block ends.
  void find_gap_starts(std::map<int64_t, int64_t>& gap_starts) const {
    std::map<int64_t, bool> entered;
    for (size_t i = 0; i < snapshot_.trace.size(); ++i) {
      const TraceEntry& entry = snapshot_.trace[i];
      if (entry.action != TraceAction::alloc) continue;
      auto at = live_.upper_bound(entry.address);
      if (at == live_.begin()) continue;
      --at;
      const Live& block = at->second;
      const int64_t end = at->first + block.size;
      if (block.is_size_known || block.released_at <= i || entry.address < end) continue;
      if (entered[at->first]) continue;
      entered[at->first] = true;
      if (entry.address - end <= kSmallSize) gap_starts[at->first] = entry.address;
    }
  }

  // Cuts [start, end) into live blocks and the free ones between them.
  std::vector<BlockImage> blocks_between(int64_t start, int64_t end) {
    std::vector<BlockImage> blocks;
    int64_t address = start;
    for (auto at = live_.lower_bound(start); at != live_.end() && at->first < end; ++at) {
      const Live& block = at->second;
      if (at->first < address || block.size > end - at->first || block.size < kMinBlockSize) {
        contradict_end(at->first, "blocks overlap at the start of the trace");
        continue;
      }
      if (at->first > address) blocks.push_back({.size = at->first - address});
      blocks.push_back({block.size, std::min(block.requested, block.size), block.state});
      address = at->first + block.size;
    }
    if (address < end) blocks.push_back({.size = end - address});
    return blocks;
  }

  void build_plain_segments() {
    for (const auto& [address, range] : ranges_) {
      if (range.is_expandable) continue;
      start_.segments.push_back({.address = address,
                                 .stream = stream_index(start_.streams, range.stream),
                                 .is_small = range.is_small,
                                 .is_expandable = false,
                                 .blocks = blocks_between(address, address + range.size)});
    }
  }

  // One segment a stream and pool, over everything that was ever seen of it.
  void build_expandable_segments(int64_t device_total_bytes) {
    std::map<std::pair<uint32_t, bool>, std::pair<int64_t, int64_t>> bounds;  // first, last address
    const auto widen = [&](int64_t address, const Range& range) {
      const auto key = std::pair(stream_index(start_.streams, range.stream), range.is_small);
      const auto [at, is_new] = bounds.try_emplace(key, std::pair(address, address + range.size));
      at->second.first = std::min(at->second.first, address);
      at->second.second = std::max(at->second.second, address + range.size);
    };
    for (const auto& [address, range] : ranges_) {
      if (range.is_expandable) widen(address, range);
    }
    if (bounds.empty()) return;  // the first mapping of the trace reserves its own addresses
    for (const auto& [address, range] : expandable_seen_) {
      const auto key = std::pair(stream_index(start_.streams, range.stream), range.is_small);
      if (bounds.contains(key)) widen(address, range);
    }
    for (const auto& [key, bound] : bounds) {
      const auto& [stream, is_small] = key;
      const int64_t page = is_small ? kSmallBuffer : settings_.large_segment_size_bytes;
      const int64_t reserved = device_total_bytes + device_total_bytes / 8;
      const int64_t size = round_up(std::max(reserved, bound.second - bound.first), page);
      SegmentImage image{.address = bound.first,
                         .stream = stream,
                         .is_small = is_small,
                         .is_expandable = true,
                         .blocks = {}};
      int64_t address = bound.first;
      for (const auto& [begin, range] : ranges_) {
        if (!range.is_expandable || range.is_small != is_small ||
            stream_index(start_.streams, range.stream) != stream) {
          continue;
        }
        append_mapped(image, address, begin, begin + range.size);
        address = begin + range.size;
      }
      append_unmapped(image, bound.first + size - address);
      start_.segments.push_back(std::move(image));
    }
  }

  static void append_unmapped(SegmentImage& image, int64_t size) {
    if (size > 0) image.blocks.push_back({.size = size, .state = BlockState::unmapped});
  }
  void append_mapped(SegmentImage& image, int64_t reached, int64_t begin, int64_t end) {
    append_unmapped(image, begin - reached);
    for (const BlockImage& block : blocks_between(begin, end)) image.blocks.push_back(block);
  }

  const Snapshot& snapshot_;
  const AllocatorSettings& settings_;
  StartState start_;
  std::map<int64_t, Range> ranges_;   // segments and mapped ranges by address
  std::map<int64_t, Range> private_;  // of private pools
  std::map<int64_t, Live> live_;
  std::vector<std::pair<int64_t, Range>> expandable_seen_;
  std::vector<std::pair<int64_t, bool>> block_pools_;  // by address: of the small pool?
};

}  // namespace

uint32_t stream_index(const std::vector<int64_t>& streams, int64_t handle) {
  const auto at = std::lower_bound(
      streams.begin(), streams.end(), handle,
      [](int64_t a, int64_t b) { return static_cast<uint64_t>(a) < static_cast<uint64_t>(b); });
  HEADROOM_CHECK(at != streams.end() && *at == handle, "a stream that was not collected");
  return static_cast<uint32_t>(at - streams.begin());
}

StartState infer_start(const Snapshot& snapshot, const AllocatorSettings& settings,
                       int64_t device_total_bytes) {
  return Rewind(snapshot, settings).run(device_total_bytes);
}

}  // namespace headroom::memory
