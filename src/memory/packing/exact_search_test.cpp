#include "memory/packing/exact_search.h"

#include <gtest/gtest.h>

#include "memory/packing/brute_force.h"
#include "memory/packing/first_fit.h"
#include "memory/packing/orders.h"
#include "memory/packing/random_problem.h"
#include "memory/packing/validator.h"

namespace headroom::memory {
namespace {

ExactOutcome search(const PackingProblem& problem, int64_t capacity, CandidateOrder order) {
  std::vector<uint32_t> requests;
  const Sections sections = make_sections(problem, requests);
  if (capacity < sections.highest_load) return ExactOutcome::impossible;
  ExactSearch exact(sections, capacity);
  Effort effort;
  effort.placements = 100'000'000;
  const ExactOutcome outcome = exact.run({.nodes = 1'000'000, .order = order}, effort);
  if (outcome == ExactOutcome::found) {
    PackingSolution solution;
    solution.offsets.resize(problem.requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      solution.offsets[requests[i]] = exact.offsets()[i];
      solution.bytes = std::max(solution.bytes, exact.offsets()[i] + sections.items[i].size);
    }
    EXPECT_LE(solution.bytes, capacity);
    const auto checked = validate_packing(problem, solution);
    EXPECT_TRUE(checked) << checked.error().to_string();
  }
  return outcome;
}

// The least height is found, and one byte less is proven impossible.
TEST(ExactSearch, AgreesWithBruteForce) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const PackingProblem problem =
        random_problem(seed, {.requests = 4 + seed % 3, .times = 7, .largest = 7});
    const int64_t least = BruteForce(problem).least_bytes();
    const auto order = static_cast<CandidateOrder>(seed % kCandidateOrderCount);
    EXPECT_EQ(search(problem, least, order), ExactOutcome::found) << "seed " << seed;
    EXPECT_EQ(search(problem, least + 1, order), ExactOutcome::found) << "seed " << seed;
    if (least > 0) {
      EXPECT_EQ(search(problem, least - 1, order), ExactOutcome::impossible) << "seed " << seed;
    }
  }
}

// What begins in the first section or ends in the last may be made an obstacle, wherever it lies.
TEST(ExactSearch, AgreesWithBruteForceAmongObstacles) {
  size_t with_obstacles = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const PackingProblem problem = random_problem(seed, {.requests = 7, .times = 6, .largest = 6});
    std::vector<uint32_t> requests;
    const Sections all = make_sections(problem, requests);
    const Placement plan = first_fit(all, make_order(all, seed % order_count()));
    Sections alone = all;
    alone.items.clear();
    std::vector<Obstacle> obstacles;
    std::vector<int64_t> fixed(problem.requests.size(), -1);
    for (size_t i = 0; i < all.items.size(); ++i) {
      const PackingItem& item = all.items[i];
      const bool is_at_side = item.begin == 0 || item.end == all.count();
      if (!is_at_side || (seed + i) % 3 == 0) {
        alone.items.push_back(item);
        continue;
      }
      obstacles.push_back({item.begin, item.end, plan.offsets[i], item.size});
      fixed[requests[i]] = plan.offsets[i];
      for (uint32_t s = item.begin; s < item.end; ++s) alone.load[s] -= item.size;
    }
    if (obstacles.empty() || alone.items.empty()) continue;
    ++with_obstacles;
    const int64_t least = BruteForce(problem, fixed).least_bytes();
    const auto search_below = [&](int64_t capacity) {
      ExactSearch exact(alone, capacity, obstacles);
      Effort effort;
      effort.placements = 100'000'000;
      const auto order = static_cast<CandidateOrder>(seed % kCandidateOrderCount);
      return exact.run({.nodes = 1'000'000, .order = order}, effort);
    };
    EXPECT_EQ(search_below(least), ExactOutcome::found) << "seed " << seed;
    EXPECT_EQ(search_below(least - 1), ExactOutcome::impossible) << "seed " << seed;
  }
  EXPECT_GT(with_obstacles, 300U);
}

TEST(ExactSearch, GivesUpAtItsLimit) {
  const PackingProblem problem = random_tiling(1, 100, 100, 60);
  std::vector<uint32_t> requests;
  const Sections sections = make_sections(problem, requests);
  ExactSearch exact(sections, sections.highest_load);
  Effort effort;
  effort.placements = 1'000'000;
  EXPECT_EQ(exact.run({.nodes = 3}, effort), ExactOutcome::gave_up);
  effort.placements = 2;
  EXPECT_EQ(exact.run({.nodes = 1'000'000}, effort), ExactOutcome::gave_up);
}

TEST(ExactSearch, ARunLeavesNoTraceInTheNext) {
  const PackingProblem problem = random_tiling(5, 60, 40, 30);
  std::vector<uint32_t> requests;
  const Sections sections = make_sections(problem, requests);
  ExactSearch exact(sections, sections.highest_load);
  for (int64_t nodes = 1; nodes < 200; nodes += 7) {
    Effort effort;
    effort.placements = 1'000'000;
    (void)exact.run({.nodes = nodes, .noise = 1, .seed = static_cast<uint64_t>(nodes)}, effort);
  }
  Effort effort;
  effort.placements = 100'000'000;
  EXPECT_EQ(exact.run({.nodes = 10'000'000}, effort), ExactOutcome::found);
}

}  // namespace
}  // namespace headroom::memory
