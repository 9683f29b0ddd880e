#include "memory/packing/homo_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "memory/generated/training_run.h"
#include "memory/packing/first_fit.h"
#include "memory/packing/random_problem.h"
#include "memory/packing/stretched.h"
#include "memory/planned_replay.h"

namespace headroom::memory {
namespace {

constexpr double kShare = 1.0 / 16;

// Up, down, up, down: two micro-batches, each a forward and a backward.
Sections two_micro_batches() {
  PackingProblem problem;
  for (const int64_t begin : {0, 100}) {
    for (int64_t i = 0; i < 10; ++i) {
      problem.requests.push_back({begin + i, begin + 40 - i, 100});      // saved
      problem.requests.push_back({begin + 25 + i, begin + 26 + i, 30});  // of the backward
    }
  }
  std::vector<uint32_t> requests;
  return make_sections(problem, requests);
}

Sections generated_step() {
  const auto run = generated::generate_training_run(
      {.iterations = 1, .layers = 6, .micro_batches = 6, .stages = 2});
  std::vector<uint32_t> requests;
  return make_sections(packing_problem_of(run.trace), requests);
}

TEST(HomoGroups, PhasesTurnWithTheLoad) {
  const Sections sections = two_micro_batches();
  const std::vector<uint32_t> phases = phases_of(sections, kShare);
  ASSERT_EQ(phases.size(), sections.count());
  EXPECT_TRUE(std::is_sorted(phases.begin(), phases.end()));
  EXPECT_EQ(phases.front(), 0u);
  EXPECT_GE(phases.back(), 2u);
  // A turn of all of the load is needed: there is none.
  EXPECT_EQ(phases_of(sections, 2.0).back(), 0u);
}

TEST(HomoGroups, GroupsPartitionTheItemsAndAreValidPlans) {
  for (const Sections& sections : {two_micro_batches(), generated_step()}) {
    const std::vector<uint32_t> phases = phases_of(sections, kShare);
    std::vector<int> seen(sections.items.size());
    for (const HomoPhaseGroup& group : homo_phase_groups(sections, kShare)) {
      ASSERT_EQ(group.items.size(), group.plan.offsets.size());
      for (size_t a = 0; a < group.items.size(); ++a) {
        const PackingItem& item = sections.items[group.items[a]];
        ++seen[group.items[a]];
        EXPECT_EQ(phases[item.begin], group.first_phase);
        EXPECT_EQ(phases[item.end - 1], group.last_phase);
        EXPECT_LE(group.plan.offsets[a] + item.size, group.plan.height);
        for (size_t b = 0; b < a; ++b) {
          const PackingItem& other = sections.items[group.items[b]];
          if (item.begin >= other.end || other.begin >= item.end) continue;
          EXPECT_TRUE(group.plan.offsets[a] + item.size <= group.plan.offsets[b] ||
                      group.plan.offsets[b] + other.size <= group.plan.offsets[a]);
        }
      }
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](int times) { return times == 1; }));
  }
}

TEST(HomoGroups, TheSameMicroBatchAgainIsTheSameGroup) {
  const auto groups = homo_phase_groups(two_micro_batches(), kShare);
  const auto by_size = homo_size_groups(groups);
  EXPECT_LT(by_size.size(), groups.size());
  EXPECT_EQ(by_size.front().groups.size(), 2u);
  for (size_t i = 1; i < by_size.size(); ++i) {
    EXPECT_LT(by_size[i].height, by_size[i - 1].height);
  }
}

TEST(HomoGroups, TheOrderIsAPermutation) {
  const Sections sections = generated_step();
  std::vector<uint32_t> order = homo_group_order(sections, kShare);
  std::sort(order.begin(), order.end());
  ASSERT_EQ(order.size(), sections.items.size());
  for (uint32_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
}

// Gradients that live from the first backward on are taken to live throughout where that is free.
TEST(Stretched, StretchesWhatTheLoadAllows) {
  PackingProblem problem;
  problem.requests = {{0, 4, 50}, {4, 10, 50}, {10, 30, 50}, {5, 30, 7}};
  std::vector<uint32_t> requests;
  const Sections sections = make_sections(problem, requests);
  const auto longer = stretched(sections, sections.highest_load);
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->highest_load, sections.highest_load);
  EXPECT_EQ(longer->items[3].begin, 0u);
  EXPECT_EQ(longer->items[3].end, longer->count());
  EXPECT_EQ(longer->items[3].size, 7);
  // Not where the beginning is too full for it.
  problem.requests.push_back({1, 4, 8});
  EXPECT_FALSE(stretched(make_sections(problem, requests), 57));
}

TEST(Stretched, NeverGoesBeyondItsTargetNorShortensALife) {
  int stretches = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<uint32_t> requests;
    const Sections sections =
        make_sections(random_problem(seed, {.requests = 40, .times = 20, .largest = 50}), requests);
    const auto longer = stretched(sections, sections.highest_load);
    if (!longer) continue;
    ++stretches;
    EXPECT_EQ(longer->highest_load, sections.highest_load);
    ASSERT_EQ(longer->items.size(), sections.items.size());
    // Whatever lived together still does.
    for (size_t a = 0; a < sections.items.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        const auto live_together = [&](const Sections& in) {
          return in.items[a].begin < in.items[b].end && in.items[b].begin < in.items[a].end;
        };
        EXPECT_TRUE(!live_together(sections) || live_together(*longer)) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(stretches, 50);
}

}  // namespace
}  // namespace headroom::memory
