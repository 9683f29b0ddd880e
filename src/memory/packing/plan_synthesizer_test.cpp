#include "memory/packing/plan_synthesizer.h"

#include <gtest/gtest.h>

#include "memory/packing/brute_force.h"
#include "memory/packing/local_search.h"
#include "memory/packing/orders.h"
#include "memory/packing/random_problem.h"
#include "memory/packing/validator.h"

namespace headroom::memory {
namespace {

Synthesis synthesize(const PackingProblem& problem, SynthesisOptions options = {}) {
  const Synthesis synthesis = PlanSynthesizer(std::move(options)).synthesize(problem);
  const auto checked = validate_packing(problem, synthesis.solution);
  EXPECT_TRUE(checked) << checked.error().to_string();
  EXPECT_EQ(synthesis.lower_bound_bytes, packing_lower_bound(problem));
  EXPECT_GE(synthesis.solution.bytes, synthesis.proven_bound_bytes);
  EXPECT_GE(synthesis.proven_bound_bytes, synthesis.lower_bound_bytes);
  return synthesis;
}

TEST(PlanSynthesizer, PlansOfAThousandRandomProblemsHold) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const ProblemShape shape{.requests = 1 + seed % 97,
                             .times = 2 + static_cast<int64_t>(seed % 61),
                             .largest = seed % 3 == 0 ? 5 : 100'000,
                             .alignment = seed % 5 == 0 ? 512 : 1};
    (void)synthesize(random_problem(seed, shape), {.placements = 20'000});
  }
}

// Where a brute force can tell, the plan is the shortest there is, and is known to be.
TEST(PlanSynthesizer, SmallPlansAreTheShortest) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const PackingProblem problem = random_problem(
        seed,
        {.requests = 4 + seed % 3, .times = 7, .largest = 9, .alignment = seed % 4 == 0 ? 4 : 1});
    const Synthesis synthesis = synthesize(problem);
    EXPECT_EQ(synthesis.solution.bytes, BruteForce(problem).least_bytes()) << "seed " << seed;
    EXPECT_TRUE(synthesis.is_optimal()) << "seed " << seed;
  }
}

TEST(PlanSynthesizer, TilingsAreMet) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Synthesis synthesis = synthesize(random_tiling(seed, 1000, 50, 60));
    EXPECT_EQ(synthesis.solution.bytes, 1000) << "seed " << seed;
  }
}

TEST(PlanSynthesizer, TheSamePlanOnAnyNumberOfCores) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const PackingProblem problem =
        random_problem(seed, {.requests = 150, .times = 60, .largest = 1000});
    const Synthesis one = synthesize(problem, {.placements = 60'000, .threads = 1});
    const Synthesis four = synthesize(problem, {.placements = 60'000, .threads = 4});
    EXPECT_EQ(one.solution, four.solution) << "seed " << seed;
    EXPECT_EQ(one.method, four.method);
    EXPECT_EQ(one.proven_bound_bytes, four.proven_bound_bytes);
  }
}

TEST(PlanSynthesizer, StopsAtItsTargetAndAtItsDeadline) {
  const PackingProblem problem = random_tiling(3, 1'000'000, 300, 800);
  const Synthesis roomy = synthesize(problem, {.target_bytes = 2'000'000});
  EXPECT_LE(roomy.solution.bytes, 2'000'000);
  // A plan comes out even where there was never any time.
  (void)synthesize(problem, {.is_out_of_time = [] { return true; }});
}

TEST(PlanSynthesizer, NothingIsPlannedInNothing) {
  EXPECT_EQ(synthesize({}).solution.bytes, 0);
  const Synthesis synthesis = synthesize({{{0, 0, 5}, {1, 4, 0}}, 1});
  EXPECT_EQ(synthesis.solution.bytes, 0);
  EXPECT_EQ(synthesis.solution.offsets, (std::vector<int64_t>{0, 0}));
}

// Iterations that ask for the same get the same plan.
TEST(PlanSynthesizer, TheSamePartAgainIsPlannedAlike) {
  const PackingProblem once = random_problem(5, {.requests = 80, .times = 40, .largest = 1000});
  PackingProblem thrice;
  for (int64_t i = 0; i < 3; ++i) {
    for (const PackingRequest& request : once.requests) {
      thrice.requests.push_back({request.lower + 100 * i, request.upper + 100 * i, request.size});
    }
  }
  thrice.requests.push_back({0, 300, 77});  // beneath them all
  const Synthesis synthesis = synthesize(thrice, {.placements = 20'000});
  for (size_t i = 0; i < 2 * once.requests.size(); ++i) {
    EXPECT_EQ(synthesis.solution.offsets[i], synthesis.solution.offsets[i + once.requests.size()]);
  }
}

TEST(PlanSynthesizer, NearEnoughIsEnough) {
  const PackingProblem problem = random_problem(7, {.requests = 900, .times = 300, .largest = 999});
  const Synthesis quick =
      synthesize(problem, {.near_enough = 0.2, .depth = SynthesisDepth::first_fit});
  EXPECT_LE(quick.solution.bytes, quick.lower_bound_bytes * 6 / 5);
  const Synthesis first_fit = synthesize(problem, {.depth = SynthesisDepth::first_fit});
  EXPECT_EQ(first_fit.method.substr(0, 9), "first fit");
  EXPECT_LE(first_fit.solution.bytes, quick.solution.bytes);
}

// What lives all the time lies at the bottom, a hundred times over; parts are planned apart.
TEST(PlanSynthesizer, DeepNestsAreCheap) {
  PackingProblem problem;
  constexpr int64_t kDepth = 20'000;
  for (int64_t i = 0; i < kDepth; ++i) problem.requests.push_back({i, 2 * kDepth - i, 1 + i % 7});
  EXPECT_TRUE(synthesize(problem).is_optimal());
}

TEST(Orders, ArePermutations) {
  std::vector<uint32_t> requests;
  const Sections sections =
      make_sections(random_problem(1, {.requests = 60, .times = 30, .largest = 100}), requests);
  for (size_t which = 0; which < order_count(); ++which) {
    std::vector<uint32_t> order = make_order(sections, which);
    std::sort(order.begin(), order.end());
    for (uint32_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i) << order_name(which);
    EXPECT_EQ(order.size(), sections.items.size());
  }
}

TEST(LocalSearch, NeverGoesUp) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const PackingProblem problem =
        random_problem(seed, {.requests = 300, .times = 200, .largest = 1000});
    std::vector<uint32_t> requests;
    const Sections sections = make_sections(problem, requests);
    Placement placement = first_fit(sections, make_order(sections, order_count() - 1));
    const int64_t before = placement.height;
    Effort effort;
    effort.placements = 20'000;
    LocalSearch(sections, placement, seed).lower(sections.highest_load, effort);
    EXPECT_LE(placement.height, before);
    PackingSolution solution;
    solution.offsets.resize(problem.requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      solution.offsets[requests[i]] = placement.offsets[i];
    }
    solution.bytes = placement.height;
    const auto checked = validate_packing(problem, solution);
    EXPECT_TRUE(checked) << checked.error().to_string();
  }
}

}  // namespace
}  // namespace headroom::memory
