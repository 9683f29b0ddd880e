#include "memory/snapshot_replay.h"

#include <gtest/gtest.h>

#include <map>

#include "memory/random_program.h"

namespace headroom::memory {
namespace {

// Runs programs on the simulator and writes down what PyTorch would: the oracle here is that a
// recording, cut anywhere, is replayed to the same addresses from a state that was only inferred.
class Recorder final : public SegmentSource {
 public:
  Recorder(const AllocatorSettings& settings, int64_t budget)
      : device_(Bytes{budget}, Bytes{budget}), allocator_(settings, *this) {}

  std::optional<int64_t> allocate(const SegmentRequest& request) override {
    const auto address = device_.allocate(request);
    if (address) write(TraceAction::segment_alloc, *address, request.bytes, request.stream);
    return address;
  }
  void release(int64_t address, int64_t bytes) override {
    write(TraceAction::segment_free, address, bytes, stream_of_.at(address));
    device_.release(address, bytes);
  }
  std::optional<int64_t> reserve(const SegmentRequest& request) override {
    const auto address = device_.reserve(request);
    if (address) reserved_[*address] = request.stream;
    return address;
  }
  void unreserve(int64_t address, int64_t bytes) override { device_.unreserve(address, bytes); }
  bool map(int64_t address, int64_t bytes) override {
    if (!device_.map(address, bytes)) return false;
    write(TraceAction::segment_map, address, bytes, owner(address));
    return true;
  }
  void unmap(int64_t address, int64_t bytes) override {
    write(TraceAction::segment_unmap, address, bytes, owner(address));
    device_.unmap(address, bytes);
  }
  [[nodiscard]] int64_t total_bytes() const override { return device_.total_bytes(); }
  [[nodiscard]] int64_t free_bytes() const override { return device_.free_bytes(); }

  void run(const std::vector<contract::Step>& program) {
    for (const contract::Step& step : program) {
      if (step.kind == contract::Step::Kind::empty_cache) {
        allocator_.empty_cache();
      } else if (step.kind == contract::Step::Kind::allocate) {
        run_allocate(step);
      } else if (!live_.empty()) {
        run_free(step);
      }
    }
  }

  // The recording without its first `cut` entries.
  [[nodiscard]] Snapshot snapshot(size_t cut) const {
    Snapshot result;
    result.trace.assign(trace_.begin() + static_cast<std::ptrdiff_t>(cut), trace_.end());
    for (const SegmentImage& image : allocator_.segments()) {
      int64_t address = image.address;
      bool joins = false;
      for (const BlockImage& block : image.blocks) {
        if (block.state != BlockState::unmapped) {
          if (!joins) {
            result.segments.push_back({.address = address,
                                       .stream = handle(image.stream),
                                       .is_small = image.is_small,
                                       .is_expandable = image.is_expandable,
                                       .blocks = {}});
          }
          add_block(result.segments.back(), address, block);
        }
        joins = block.state != BlockState::unmapped;
        address += block.size;
      }
    }
    return result;
  }
  [[nodiscard]] size_t entries() const { return trace_.size(); }
  [[nodiscard]] bool is_inside_request(size_t cut) const {
    return cut > 0 && cut < trace_.size() && trace_[cut - 1].action == TraceAction::segment_alloc;
  }

 private:
  struct LiveBlock {
    BlockId block = kNoBlock;
    int64_t requested = 0;
    uint32_t stream = 0;
    bool is_pending = false;
  };

  static int64_t handle(uint32_t stream) { return stream * int64_t{0x1000}; }

  static void add_block(SnapshotSegment& segment, int64_t address, const BlockImage& block) {
    segment.total_size += block.size;
    if (block.state == BlockState::allocated) segment.allocated_size += block.size;
    if (block.state != BlockState::free) segment.active_size += block.size;
    segment.blocks.push_back({.address = address,
                              .size = block.size,
                              .requested = block.requested,
                              .state = block.state,
                              .history = {}});
  }
  void write(TraceAction action, int64_t address, int64_t size, uint32_t stream) {
    if (action == TraceAction::segment_alloc) stream_of_[address] = stream;
    trace_.push_back(
        {.action = action, .address = address, .size = size, .stream = handle(stream)});
  }
  [[nodiscard]] uint32_t owner(int64_t address) const {
    return std::prev(reserved_.upper_bound(address))->second;
  }
  void run_allocate(const contract::Step& step) {
    const auto allocation = allocator_.allocate(step.bytes, step.stream);
    if (!allocation) {
      return write(TraceAction::out_of_memory, device_.free_bytes(), step.bytes, step.stream);
    }
    write(TraceAction::alloc, allocation->address, step.bytes, step.stream);
    live_[allocation->address] = {allocation->block, step.bytes, step.stream};
  }
  // Every third release waits until its block is picked once more.
  void run_free(const contract::Step& step) {
    const auto at = std::next(live_.begin(), step.pick % live_.size());
    LiveBlock& block = at->second;
    if (!block.is_pending) {
      write(TraceAction::free_requested, at->first, block.requested, block.stream);
      allocator_.begin_free(block.block);
      block.is_pending = true;
      if (step.pick % 3 == 0) return;
    }
    write(TraceAction::free_completed, at->first, block.requested, block.stream);
    allocator_.finish_free(block.block);
    live_.erase(at);
  }

  DeviceMemory device_;
  CachingAllocator allocator_;
  std::map<int64_t, uint32_t> stream_of_;
  std::map<int64_t, uint32_t> reserved_;
  std::map<int64_t, LiveBlock> live_;
  std::vector<TraceEntry> trace_;
};

std::string describe(const SnapshotReplay& replay) {
  std::string text;
  for (const Contradiction& seen : replay.contradictions) {
    text += "entry " + std::to_string(seen.entry) + ", address " + std::to_string(seen.address) +
            ": " + seen.message + "\n";
  }
  if (replay.divergence) {
    text += "entry " + std::to_string(replay.divergence->entry) + ": " +
            replay.divergence->message + ", recorded " +
            std::to_string(replay.divergence->recorded) + ", simulated " +
            std::to_string(replay.divergence->simulated);
  }
  return text;
}

class RecordedPrograms : public testing::TestWithParam<const char*> {};

TEST_P(RecordedPrograms, AreReplayedExactlyFromAnyCut) {
  const auto settings = parse_allocator_config(GetParam());
  ASSERT_TRUE(settings);
  constexpr int64_t kBudget = 500 * kMiB;
  const bool ages_are_lost = settings->garbage_collection_threshold > 0;
  const bool has_oversize = settings->max_split_size_bytes != kUnlimited;
  const auto outcome = rc::check([&] {
    Recorder recorder(*settings, kBudget);
    recorder.run(*contract::any_program(200));
    size_t cut = ages_are_lost ? 0 : *rc::gen::inRange<size_t>(0, recorder.entries() + 1);
    // With a max_split_size, a fresh segment serves requests that a cached one may not, so a trace
    // must not begin between a segment and its first block.
    while (has_oversize && recorder.is_inside_request(cut)) ++cut;
    const Snapshot snapshot = recorder.snapshot(cut);
    const SnapshotReplay replay =
        replay_snapshot(snapshot, {.settings = *settings, .device_total_bytes = kBudget});
    if (!replay.contradictions.empty()) RC_FAIL(describe(replay));
    // Where a size at the start is a guess, a difference is not the simulator's.
    RC_PRE(replay.assumed_sizes == 0);
    if (!replay.is_exact()) RC_FAIL(describe(replay));
  });
  EXPECT_TRUE(outcome);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, RecordedPrograms,
    testing::Values("", "expandable_segments:True", "max_split_size_mb:32",
                    "roundup_power2_divisions:4", "per_process_memory_fraction:0.7",
                    "garbage_collection_threshold:0.4,per_process_memory_fraction:0.8"));

// A recording in which every kind of damage can be done.
Snapshot small_recording() {
  Recorder recorder({}, kGiB);
  using contract::Step;
  recorder.run({{Step::Kind::allocate, 30 * kMiB, 0, 0},
                {Step::Kind::allocate, 3 * kMiB, 0, 0},
                {Step::Kind::allocate, 512, 0, 0},
                {Step::Kind::free, 0, 0, 1},
                {Step::Kind::allocate, 5 * kMiB, 0, 0}});
  return recorder.snapshot(0);
}

TEST(SnapshotReplay, NamesAllocationsElsewhere) {
  Snapshot snapshot = small_recording();
  ASSERT_TRUE(replay_snapshot(snapshot, {}).is_exact());
  AllocatorSettings other;
  other.roundup_power2_divisions.fill(2);
  EXPECT_FALSE(replay_snapshot(snapshot, {.settings = other}).is_exact());
  other = {};
  other.expandable_segments = true;
  EXPECT_FALSE(replay_snapshot(snapshot, {.settings = other}).is_exact());
}

TEST(SnapshotReplay, NamesContradictionsWithTheirPlace) {
  const Snapshot good = small_recording();
  for (size_t i = 0; i < good.trace.size(); ++i) {
    Snapshot damaged = good;
    damaged.trace.erase(damaged.trace.begin() + static_cast<std::ptrdiff_t>(i));
    const bool is_silent = good.trace[i].action == TraceAction::free_requested ||
                           good.trace[i].action == TraceAction::segment_alloc;
    if (!is_silent && good.trace[i].action != TraceAction::alloc) {
      EXPECT_FALSE(replay_snapshot(damaged, {}).is_exact()) << i;
    }
    damaged = good;
    damaged.trace[i].address += 4 * kMiB;
    EXPECT_FALSE(replay_snapshot(damaged, {}).is_exact()) << i;
    damaged = good;
    damaged.trace[i].size += 512;
    EXPECT_FALSE(replay_snapshot(damaged, {}).is_exact()) << i;
  }
  Snapshot damaged = good;
  damaged.segments[0].blocks[0].size += 512;
  EXPECT_FALSE(replay_snapshot(damaged, {}).contradictions.empty());
  damaged = good;
  damaged.segments.push_back(damaged.segments[0]);
  EXPECT_FALSE(replay_snapshot(damaged, {}).contradictions.empty());
}

TEST(SnapshotReplay, OfNothing) { EXPECT_TRUE(replay_snapshot({}, {}).is_exact()); }

}  // namespace
}  // namespace headroom::memory
