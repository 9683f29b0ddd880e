#include "memory/allocator_contract.h"

#include <gtest/gtest.h>

#include "memory/best_fit_arena.h"
#include "memory/caching_allocator.h"
#include "memory/random_program.h"

namespace headroom::memory::contract {
namespace {

constexpr int64_t kBudget = 600 * kMiB;

class CachingUnderTest final : public AllocatorUnderTest {
 public:
  explicit CachingUnderTest(const AllocatorSettings& settings)
      : device_(Bytes{kBudget}, Bytes{kBudget}), allocator_(settings, device_) {}

  std::optional<Placement> allocate(int64_t bytes, uint32_t stream) override {
    const auto allocation = allocator_.allocate(bytes, stream);
    if (!allocation) return std::nullopt;
    return Placement{allocation->block, allocation->address, allocation->size};
  }
  void free(uint64_t handle) override { allocator_.free(static_cast<BlockId>(handle)); }
  void empty_cache() override { allocator_.empty_cache(); }
  [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> held() const override {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const SegmentImage& image : allocator_.segments()) {
      int64_t address = image.address;
      bool joins = false;
      for (const BlockImage& block : image.blocks) {
        const bool is_mapped = block.state != BlockState::unmapped;
        if (is_mapped && joins) {
          ranges.back().second += block.size;
        } else if (is_mapped) {
          ranges.emplace_back(address, block.size);
        }
        joins = is_mapped;
        address += block.size;
      }
    }
    return ranges;
  }
  [[nodiscard]] int64_t allocated_bytes() const override {
    return allocator_.statistics().allocated_bytes.current;
  }
  [[nodiscard]] int64_t requested_bytes() const override {
    return allocator_.statistics().requested_bytes.current;
  }
  [[nodiscard]] int64_t reserved_bytes() const override {
    return allocator_.statistics().reserved_bytes.current;
  }
  [[nodiscard]] Result<void> check() const override { return allocator_.check_invariants(); }

 private:
  DeviceMemory device_;
  CachingAllocator allocator_;
};

Candidate caching(std::string name, std::string_view settings) {
  auto parsed = parse_allocator_config(settings);
  EXPECT_TRUE(parsed) << settings;
  return {std::move(name),
          [parsed = *parsed] { return std::make_unique<CachingUnderTest>(parsed); }, kBudget};
}

class ArenaUnderTest final : public AllocatorUnderTest {
 public:
  std::optional<Placement> allocate(int64_t bytes, uint32_t stream) override {
    const auto block = arena_.allocate(bytes, stream);
    if (!block) return std::nullopt;
    return Placement{block->handle, block->address, block->size};
  }
  void free(uint64_t handle) override { arena_.free(handle); }
  void empty_cache() override { arena_.empty_cache(); }
  [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> held() const override {
    return arena_.held();
  }
  [[nodiscard]] int64_t allocated_bytes() const override { return arena_.allocated_bytes(); }
  [[nodiscard]] int64_t requested_bytes() const override { return arena_.requested_bytes(); }
  [[nodiscard]] int64_t reserved_bytes() const override { return arena_.reserved_bytes(); }
  [[nodiscard]] Result<void> check() const override { return {}; }

 private:
  BestFitArena arena_{kBudget};
};

Candidate best_fit() {
  return {"best_fit_arena", [] { return std::make_unique<ArenaUnderTest>(); }, kBudget};
}

class AllocatorContract : public testing::TestWithParam<Candidate> {};

TEST_P(AllocatorContract, HoldsForRandomPrograms) {
  const auto outcome = rc::check([this] {
    const auto program = *any_program(120);
    const auto complaint = run_program(GetParam(), program);
    if (complaint) RC_FAIL(*complaint);
  });
  EXPECT_TRUE(outcome);
}

INSTANTIATE_TEST_SUITE_P(
    All, AllocatorContract,
    testing::Values(
        caching("caching", ""), caching("expandable", "expandable_segments:True"),
        caching("max_split", "max_split_size_mb:32"),
        caching("roundup", "roundup_power2_divisions:[1:4,16:8,>:2]"),
        caching("collecting", "garbage_collection_threshold:0.4,per_process_memory_fraction:0.8"),
        caching("expandable_small_pages",
                "expandable_segments:True,large_segment_size_mb:12,roundup_power2_divisions:4"),
        best_fit()),
    [](const testing::TestParamInfo<Candidate>& candidate) { return candidate.param.name; });

}  // namespace
}  // namespace headroom::memory::contract
