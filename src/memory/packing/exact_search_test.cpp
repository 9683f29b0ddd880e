#include "memory/packing/exact_search.h"

#include <gtest/gtest.h>

#include "memory/packing/brute_force.h"
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
  for (uint64_t seed = 0; seed < 400; ++seed) {
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
