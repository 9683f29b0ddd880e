#include "memory/plan/plan_checker.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "memory/plan/plan_sample.h"

namespace headroom::memory {
namespace {

TEST(PlanChecker, TakesWhatHolds) {
  const auto checked = check_plan(sample_plan());
  EXPECT_TRUE(checked) << checked.error().to_string();
  EXPECT_TRUE(check_plan({}));
  const auto lending = check_plan(lending_plan());
  EXPECT_TRUE(lending) << lending.error().to_string();
}

TEST(PlanChecker, FindsGuestsThatAreNone) {
  using Change = std::function<void(std::vector<PlannedSlot>&)>;
  const std::vector<Change> changes = {
      [](auto& slots) { slots[4].is_guest = false; },
      [](auto& slots) { slots[0].is_guest = true; },     // at home
      [](auto& slots) { slots[0].is_in_order = true; },  // no guest
      [](auto& slots) { slots[4].is_carried = true; },
      [](auto& slots) { slots[1].ends = 5; },             // the lender is still there
      [](auto& slots) { slots[4].offset = 3072 + 512; },  // beyond the lender's range
      [](auto& slots) { slots[4].offset = 4096; },
      [](auto& slots) { slots[4].offset = -512; },
      [](auto& slots) { slots[5].offset = 2048; },  // another guest is there
      [](auto& slots) { slots[4].smallest = slots[4].largest = 0; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    MemoryPlan plan = lending_plan();
    changes[i](plan.signatures[0].slots);
    EXPECT_FALSE(check_plan(plan)) << "change " << i;
  }
}

// What the lender's idle space is known to be, a guest in it denies.
TEST(PlanChecker, AGuestLivesInTheSpacesOfItsHost) {
  MemoryPlan plan = lending_plan();
  plan.signatures[0].spaces = {{1, 4, 5, {{3072, 1024}}}};
  EXPECT_TRUE(check_plan(plan));
  plan.signatures[0].spaces = {{1, 4, 5, {{2048, 1024}}}};
  EXPECT_FALSE(check_plan(plan));
}

TEST(PlanChecker, ASlotElsewhereHasNothingHere) {
  EXPECT_TRUE(check_plan(plan_with_slot_elsewhere()));
  using Change = std::function<void(PlannedSlot&)>;
  const std::vector<Change> changes = {
      [](PlannedSlot& s) { s.offset = 512; },         [](PlannedSlot& s) { s.is_carried = true; },
      [](PlannedSlot& s) { s.is_guest = true; },      [](PlannedSlot& s) { s.ends = 4; },
      [](PlannedSlot& s) { s.largest = INT64_MAX; },  [](PlannedSlot& s) { s.stream = 9; },
      [](PlannedSlot& s) { s.is_elsewhere = false; },  // and then no room is left for it
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    MemoryPlan plan = plan_with_slot_elsewhere();
    changes[i](plan.signatures[1].slots.back());
    EXPECT_FALSE(check_plan(plan)) << "change " << i;
  }
}

TEST(PlanChecker, FindsEachWrong) {
  using Change = std::function<void(MemoryPlan&)>;
  const std::vector<Change> changes = {
      [](MemoryPlan& p) { p.alignment = 0; },
      [](MemoryPlan& p) { p.bytes += 512; },
      [](MemoryPlan& p) { p.bytes = -1; },
      [](MemoryPlan& p) { p.streams[1].range.offset -= 512; },
      [](MemoryPlan& p) { p.streams[0].persistent_bytes = 1 << 20; },
      [](MemoryPlan& p) { p.streams[0].carried_bytes = -512; },
      [](MemoryPlan& p) { p.persistent[1].offset = 0; },
      [](MemoryPlan& p) { p.persistent[1].offset = 1024; },
      [](MemoryPlan& p) { p.persistent[1].stream = 7; },
      [](MemoryPlan& p) { p.persistent[1].size = INT64_MAX; },
      [](MemoryPlan& p) { p.signatures[0].slots[1].offset = 2048; },  // into slot 0
      [](MemoryPlan& p) { p.signatures[0].slots[0].ends = 3; },       // slot 2 is in its place
      [](MemoryPlan& p) { p.signatures[0].slots[0].ends = 0; },
      [](MemoryPlan& p) { p.signatures[0].slots[0].ends = 5; },
      [](MemoryPlan& p) { p.signatures[0].slots[0].offset += 1; },
      [](MemoryPlan& p) { p.signatures[0].slots[0].offset = 512; },  // among the persistent
      [](MemoryPlan& p) { p.signatures[0].slots[0].smallest = 2000; },
      [](MemoryPlan& p) { p.signatures[0].slots[0].stream = 1; },
      [](MemoryPlan& p) { p.signatures[0].slots[3].is_carried = false; },
      [](MemoryPlan& p) { p.signatures[0].slots[3].ends = 3; },
      [](MemoryPlan& p) { p.signatures[0].spaces[0].idle[0].offset = 4096; },
      [](MemoryPlan& p) { p.signatures[0].spaces[0].idle[0].size = 0; },
      [](MemoryPlan& p) {
        p.signatures[0].spaces[0].idle[0] = {4608 + 256, 256};
      },
      [](MemoryPlan& p) { p.streams[0].carried_bytes -= 1; },
      [](MemoryPlan& p) { p.streams[1].range.size += 256, p.bytes += 256; },
      [](MemoryPlan& p) { p.signatures[0].spaces[0].idle[0].size = 4096; },
      [](MemoryPlan& p) { p.signatures[0].spaces[1].begins = 1; },  // slot 0 lives there
      [](MemoryPlan& p) {
        std::swap(p.signatures[0].spaces[1].idle[0], p.signatures[0].spaces[1].idle[1]);
      },
      [](MemoryPlan& p) { p.signatures[0].places[0].space = 9; },
      [](MemoryPlan& p) { p.signatures[0].places[1].rank = 0; },
      [](MemoryPlan& p) { p.signatures[0].places[2].before = 99; },
      [](MemoryPlan& p) { p.signatures[1].slots[0].offset = 1024; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    MemoryPlan plan = sample_plan();
    changes[i](plan);
    EXPECT_FALSE(check_plan(plan)) << "change " << i;
  }
}

// Random plans against the definition, pair by pair.
TEST(PlanChecker, AgreesWithThePairwiseDefinition) {
  std::mt19937_64 random(7);
  size_t good = 0;
  size_t bad = 0;
  for (int round = 0; round < 4000; ++round) {
    MemoryPlan plan;
    plan.bytes = 12;
    plan.streams = {{{0, 12}, 0, 0}};
    SignaturePlan signature;
    const size_t count = 2 + random() % 5;
    for (size_t i = 0; i < count; ++i) {
      const auto ends = static_cast<uint32_t>(i + 1 + random() % (count - i));
      const auto size = static_cast<int64_t>(random() % 4);
      const auto offset = static_cast<int64_t>(random() % 9);
      signature.slots.push_back({0, ends, size, size, offset, false});
    }
    bool overlaps = false;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = i + 1; j < count; ++j) {
        const PlannedSlot& a = signature.slots[i];
        const PlannedSlot& b = signature.slots[j];
        const bool together = j < a.ends;
        const bool share = a.offset < b.offset + b.largest && b.offset < a.offset + a.largest;
        overlaps = overlaps || (together && share && a.largest > 0 && b.largest > 0);
      }
    }
    plan.signatures = {signature};
    EXPECT_EQ(static_cast<bool>(check_plan(plan)), !overlaps) << "round " << round;
    ++(overlaps ? bad : good);
  }
  EXPECT_GT(good, 200u);
  EXPECT_GT(bad, 200u);
}

}  // namespace
}  // namespace headroom::memory
