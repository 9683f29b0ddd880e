#include "memory/plan/iterations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "memory/plan/run_truth.h"

namespace headroom::memory {
namespace {

struct Case {
  std::string name;
  RunShape shape;
};

std::vector<Case> cases() {
  using Work = RunShape::Work;
  return {
      {"AllAlike", {}},
      {"MicroBatches", {.iterations = 4, .micro_batches = 4}},
      {"RandomRouting", {.injected_share = 0.2}},
      {"ThreeLengths", {.iterations = 12, .lengths = 3}},
      {"AnyLength", {.iterations = 10, .lengths = 0}},
      {"AnyLengthAndRouting", {.iterations = 10, .injected_share = 0.05, .lengths = 0}},
      {"FusedOptimizer", {.steps_parameters = false}},
      {"GradientsFreedLate", {.frees_gradients_late = true}},
      {"RecordedFromTheMiddle", {.starts_at = 0.4, .ends_at = 0.6}},
      {"Deep", {.iterations = 3, .layers = 48}},
      {"Evaluations", {.iterations = 24, .evaluations = 8}},
      {"ManyEvaluations", {.iterations = 24, .evaluations = 2}},
      {"Tokens", {.work = Work::decoding, .iterations = 40}},
      {"Prompts", {.work = Work::decoding, .iterations = 60, .prompt_every = 15}},
      {"TokensAndRouting", {.work = Work::decoding, .iterations = 40, .injected_share = 0.1}},
  };
}

class GeneratedIterations : public testing::TestWithParam<Case> {};

TEST_P(GeneratedIterations, AreFound) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const GeneratedRun run = generate_run(seed, GetParam().shape);
    const Iterations iterations = find_iterations(run.requests);
    const BoundaryScore score = score_boundaries(run, GetParam().shape, iterations);
    EXPECT_EQ(score.right, score.found) << "seed " << seed;
    // The boundary may lie within an iteration, whose ends are then incomplete.
    EXPECT_GE(score.right + 1, score.real) << "seed " << seed;
    EXPECT_EQ(iterations.source, BoundarySource::sequence);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GeneratedIterations, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

// A forward pass between two steps looks like the beginning of a step; it is a kind of its own.
TEST(Iterations, AnEvaluationIsAKindOfItsOwn) {
  size_t evaluations = 0;
  size_t found = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const RunShape shape{.iterations = 24, .evaluations = 8};
    const GeneratedRun run = generate_run(seed, shape);
    const Iterations iterations = find_iterations(run.requests);
    const size_t real =
        static_cast<size_t>(std::count(run.places.begin(), run.places.end(), kEvaluationLine));
    evaluations += real;
    found += score_boundaries(run, shape, iterations).evaluations;
    EXPECT_EQ(iterations.kinds, real > 0 ? 2u : 1u) << "seed " << seed;
  }
  EXPECT_GT(evaluations, 20u);
  EXPECT_GE(found + 1, evaluations);
}

TEST(Iterations, OneStepIsNoIteration) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const GeneratedRun run = generate_run(seed, {.iterations = 1});
    EXPECT_TRUE(find_iterations(run.requests).whole.empty()) << "seed " << seed;
  }
}

TEST(Iterations, NothingAndNearlyNothing) {
  EXPECT_TRUE(find_iterations({}).whole.empty());
  std::vector<RecordedRequest> requests;
  for (int64_t i = 1; i <= 3; ++i) requests.push_back({i, i + 1, 512, 0, 0, i + 1});
  EXPECT_LE(find_iterations({requests.data(), 1}).whole.size(), 1u);
  const Iterations few = find_iterations(requests);
  for (const Iteration& iteration : few.whole) EXPECT_LT(iteration.begin, iteration.end);
}

// They say how often; where, the load does: each iteration begins near its mark, with no more
// alive.
TEST(Iterations, MarksAreTaken) {
  const RunShape shape{.iterations = 6};
  const GeneratedRun run = generate_run(7, shape);
  std::vector<int64_t> marks;
  for (size_t i = 0; i < run.requests.size(); ++i) {
    if (run.places[i] == 3) marks.push_back(run.requests[i].lower);
  }
  ASSERT_EQ(marks.size(), 6u);
  const Iterations iterations = find_iterations(run.requests, marks);
  EXPECT_EQ(iterations.source, BoundarySource::marks);
  ASSERT_GE(iterations.whole.size(), 5u);
  const auto live_at = [&](int64_t time) {
    int64_t bytes = 0;
    for (const RecordedRequest& request : run.requests) {
      if (request.lower < time && request.upper >= time) bytes += request.size;
    }
    return bytes;
  };
  for (const size_t i : {size_t{0}, size_t{4}}) {
    EXPECT_LE(std::abs(iterations.whole[i].lower - marks[i]), 4);
    EXPECT_LE(live_at(iterations.whole[i].lower), live_at(marks[i]));
  }
}

TEST(Iterations, EachLengthIsAKind) {
  const GeneratedRun run = generate_run(3, {.iterations = 12, .lengths = 3});
  EXPECT_EQ(find_iterations(run.requests).kinds, 3u);
  const GeneratedRun other = generate_run(3, {.iterations = 10, .lengths = 0});
  EXPECT_LE(find_iterations(other.requests).kinds, 3u);
}

}  // namespace
}  // namespace headroom::memory
