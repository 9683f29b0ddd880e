// The general arena under the contract that every allocator keeps (memory/allocator_contract.h),
// with pages mapped by nobody, and one by one what random programs rarely meet.
#include "runtime/general_arena.h"

#include <gtest/gtest.h>

#include <map>

#include "base/units.h"
#include "memory/allocator_contract.h"
#include "memory/random_program.h"

namespace headroom::runtime {
namespace {

constexpr int64_t kPage = 2 * kMiB;
constexpr int64_t kBudget = 600 * kMiB;
constexpr int64_t kSpan = kGiB;

// Pages are counted, not mapped.
class ArenaUnderTest final : public memory::contract::AllocatorUnderTest {
 public:
  std::optional<memory::contract::Placement> allocate(int64_t bytes, uint32_t stream) override {
    const int64_t size = std::max(round_up(bytes, kAlignment), kAlignment);
    const uint32_t range =
        arena_.range_of(kGeneralPool, reinterpret_cast<CudaStream*>(uintptr_t{stream}), size);
    uint32_t block = arena_.take(range, size);
    for (int attempt = 0; block == kNoNumber && attempt < 2; ++attempt) {
      if (attempt == 1) empty_cache();
      auto growth = arena_.begin_growth(range, size);
      if (!growth) {
        arena_.add_segment(range, next_, kSpan, true);
        next_ += kSpan;
        growth = arena_.begin_growth(range, size);
      }
      if (pages_ + growth->bytes > kBudget) {
        arena_.abort_growth(*growth);
        continue;
      }
      pages_ += growth->bytes;
      block = arena_.commit_growth(*growth, size);
    }
    if (block == kNoNumber) return std::nullopt;
    arena_.block(block).requested = bytes;
    allocated_ += size;
    requested_ += bytes;
    return memory::contract::Placement{block, arena_.block(block).address,
                                       arena_.block(block).size};
  }
  void free(uint64_t handle) override {
    const auto& block = arena_.block(static_cast<uint32_t>(handle));
    allocated_ -= block.size;
    requested_ -= block.requested;
    arena_.give(static_cast<uint32_t>(handle));
  }
  void empty_cache() override {
    for (const auto& piece : arena_.collect_pages()) pages_ -= piece.bytes;
  }
  [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> held() const override {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const auto& segment : arena_.segments()) {
      bool joins = false;
      for (uint32_t i = segment.first; i != kNoNumber; i = arena_.block(i).next) {
        const auto& block = arena_.block(i);
        const bool is_mapped = block.state != BlockState::unmapped;
        if (is_mapped && joins) {
          ranges.back().second += block.size;
        } else if (is_mapped) {
          ranges.emplace_back(block.address, block.size);
        }
        joins = is_mapped;
      }
    }
    return ranges;
  }
  [[nodiscard]] int64_t allocated_bytes() const override { return allocated_; }
  [[nodiscard]] int64_t requested_bytes() const override { return requested_; }
  [[nodiscard]] int64_t reserved_bytes() const override { return pages_; }
  [[nodiscard]] Result<void> check() const override { return arena_.check(); }

 private:
  GeneralArena arena_{kPage};
  int64_t next_ = kSpan;
  int64_t pages_ = 0;
  int64_t allocated_ = 0;
  int64_t requested_ = 0;
};

TEST(GeneralArena, KeepsTheContractOfAllocators) {
  const memory::contract::Candidate candidate{
      "general", [] { return std::make_unique<ArenaUnderTest>(); }, kBudget};
  EXPECT_TRUE(rc::check([&] {
    const auto program = *memory::contract::any_program(120);
    const auto complaint = memory::contract::run_program(candidate, program);
    if (complaint) RC_FAIL(*complaint);
  }));
}

TEST(GeneralArena, AnAbortedGrowthLeavesAllAsItWas) {
  GeneralArena arena(kPage);
  const uint32_t range = arena.range_of(kGeneralPool, nullptr, 3 * kMiB);
  arena.add_segment(range, kGiB, kGiB, true);
  const uint32_t first = arena.commit_growth(*arena.begin_growth(range, 3 * kMiB), 3 * kMiB);
  const auto growth = arena.begin_growth(range, 5 * kMiB);  // with the free mebibyte before it
  ASSERT_TRUE(growth);
  EXPECT_EQ(growth->bytes, 4 * kMiB);
  EXPECT_EQ(arena.free_bytes(), 0);
  arena.abort_growth(*growth);
  EXPECT_TRUE(arena.check());
  EXPECT_EQ(arena.free_bytes(), kMiB);
  arena.give(first);
  EXPECT_EQ(arena.collect_pages().size(), 1U);
  EXPECT_EQ(arena.free_bytes(), 0);
}

TEST(GeneralArena, WhatWasCollectedCanBeRestored) {
  GeneralArena arena(kPage);
  const uint32_t range = arena.range_of(kGeneralPool, nullptr, 3 * kMiB);
  arena.add_segment(range, kGiB, kGiB, true);
  const uint32_t low = arena.commit_growth(*arena.begin_growth(range, 3 * kMiB), 3 * kMiB);
  const uint32_t high = arena.commit_growth(*arena.begin_growth(range, 9 * kMiB), 9 * kMiB);
  arena.give(high);
  const auto pieces = arena.collect_pages();
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].bytes, 8 * kMiB);
  arena.restore(pieces);
  EXPECT_TRUE(arena.check());
  EXPECT_EQ(arena.free_bytes(), 9 * kMiB);
  arena.give(low);
  EXPECT_TRUE(arena.check());
}

TEST(GeneralArena, StreamsAndPoolsShareNothing) {
  GeneralArena arena(kPage);
  auto* const other = reinterpret_cast<CudaStream*>(uintptr_t{8});
  const uint32_t mine = arena.range_of(kGeneralPool, nullptr, 512);
  EXPECT_NE(mine, arena.range_of(kGeneralPool, other, 512));
  EXPECT_NE(mine, arena.range_of(1, nullptr, 512));
  EXPECT_EQ(mine, arena.range_of(kGeneralPool, nullptr, 1024));
  const uint32_t captured = arena.range_of(1, nullptr, 4 * kMiB);
  arena.add_segment(captured, kGiB, kGiB, true);
  const uint32_t block = arena.commit_growth(*arena.begin_growth(captured, 4 * kMiB), 4 * kMiB);
  arena.give(block);
  EXPECT_TRUE(arena.collect_pages().empty()) << "a captured page stays mapped";
  arena.release_pool(1);
  EXPECT_EQ(arena.collect_pages().size(), 1U);
}

// Else small requests would lie in the way of what large ones grow into.
TEST(GeneralArena, WhatCanGrowIsTakenLast) {
  GeneralArena arena(kPage);
  const uint32_t range = arena.range_of(kGeneralPool, nullptr, 4 * kMiB);
  arena.add_segment(range, kSpan, kSpan, true);
  const auto grown = [&](int64_t size) {
    const auto growth = arena.begin_growth(range, size);
    return arena.commit_growth(*growth, size);
  };
  const uint32_t first = grown(6 * kMiB);
  const uint32_t second = grown(kPage + kMiB);  // leaves 1 MiB at its end, before unmapped pages
  arena.give(first);
  const uint32_t third = arena.take(range, kMiB);
  EXPECT_EQ(arena.block(third).address, kSpan);  // of the 6 MiB, not of the 1 MiB that fits exactly
  EXPECT_EQ(arena.take(range, 5 * kMiB + kAlignment), kNoNumber);
  EXPECT_NE(arena.take(range, 5 * kMiB), kNoNumber);
  const uint32_t last = arena.take(range, kMiB);  // nothing else is left
  EXPECT_GT(arena.block(last).address, arena.block(second).address);
  EXPECT_TRUE(arena.check());
}

}  // namespace
}  // namespace headroom::runtime
