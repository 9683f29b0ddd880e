#include "memory/plan/plan_maker.h"

#include <gtest/gtest.h>

#include "memory/plan/generated_run.h"
#include "memory/plan/plan_checker.h"
#include "memory/plan/plan_score.h"

namespace headroom::memory {
namespace {

// A generated run with all that is understood of it.
struct Understood {
  explicit Understood(GeneratedRun made)
      : run(std::move(made)),
        iterations(find_iterations(run.requests)),
        classes(classify_requests(run.requests, iterations)),
        finder(run.requests, iterations) {}
  [[nodiscard]] UnderstoodRecording recording() const {
    return {run.requests, iterations, classes, finder};
  }
  [[nodiscard]] std::vector<uint32_t> all() const {
    std::vector<uint32_t> numbers(iterations.whole.size());
    for (uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
    return numbers;
  }

  GeneratedRun run;
  Iterations iterations;
  RequestClasses classes;
  SlotFinder finder;
};

PlanOptions quick() {
  PlanOptions options;
  options.synthesis.placements = 20'000;
  options.synthesis.threads = 1;
  return options;
}

std::vector<RunShape> shapes() {
  using Work = RunShape::Work;
  return {
      {},
      {.injected_share = 0.1},
      {.iterations = 12, .lengths = 3},
      {.iterations = 8, .lengths = 0},
      {.iterations = 8, .injected_share = 0.1, .lengths = 0},
      {.frees_gradients_late = true},
      {.starts_at = 0.3, .ends_at = 0.7},
      {.work = Work::decoding, .iterations = 20},
      {.work = Work::decoding, .iterations = 30, .injected_share = 0.1, .prompt_every = 7},
  };
}

TEST(PlanMaker, EveryPlanHolds) {
  for (const RunShape& shape : shapes()) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const Understood understood(generate_run(seed, shape));
      ASSERT_FALSE(understood.iterations.whole.empty());
      for (const bool varying : {true, false}) {
        const MemoryPlan plan = make_plan(understood.recording(), quick(), varying);
        const auto checked = check_plan(plan);
        EXPECT_TRUE(checked) << checked.error().to_string();
        ASSERT_EQ(plan.signatures.size(), understood.iterations.kinds);
      }
    }
  }
}

TEST(PlanMaker, WhatIsAlikeIsServedWhole) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Understood understood(generate_run(seed, {}));
    const auto score = score_held_out(understood.recording(), quick());
    ASSERT_TRUE(score);
    EXPECT_EQ(score->iterations, 2u);  // of six: not the first, nor the three it is planned from
    EXPECT_EQ(score->planned, score->requests);
    EXPECT_EQ(score->fallback_bytes, 0);
    EXPECT_GE(score->efficiency(), 0.98);
    EXPECT_LE(score->efficiency(), 1);
  }
}

// A length that the plan knows is met by its own signature.
TEST(PlanMaker, EachLengthHasItsSignature) {
  const Understood understood(generate_run(5, {.iterations = 24, .lengths = 3}));
  ASSERT_EQ(understood.iterations.kinds, 3u);
  const auto score = score_held_out(understood.recording(), quick());
  ASSERT_TRUE(score);
  EXPECT_GE(score->share(score->planned), 0.99);
}

TEST(PlanMaker, RandomRoutingReusesIdleAddresses) {
  const Understood understood(generate_run(3, {.iterations = 12, .injected_share = 0.1}));
  const auto score = score_held_out(understood.recording(), quick());
  ASSERT_TRUE(score);
  EXPECT_EQ(score->planned + score->reused + score->fallen_back, score->requests);
  EXPECT_GT(score->reused, score->fallen_back);
  EXPECT_GE(score->share(score->planned), 0.9);
}

TEST(PlanMaker, OneStepCannotBeScored) {
  Understood understood(generate_run(3, {.iterations = 4}));
  ASSERT_FALSE(understood.iterations.whole.empty());
  understood.iterations.whole.resize(1);
  understood.classes = classify_requests(understood.run.requests, understood.iterations);
  EXPECT_FALSE(score_held_out(understood.recording(), quick()));
}

// Two streams, and one block whose release another stream completes later.
struct TwoStreams {
  std::vector<RecordedRequest> requests;
  Iterations iterations;
};
TwoStreams two_streams() {
  TwoStreams made;
  int64_t time = 0;
  for (size_t i = 0; i < 4; ++i) {
    Iteration iteration;
    iteration.begin = made.requests.size();
    iteration.lower = time + 1;
    for (int64_t r = 0; r < 20; ++r) {
      const int64_t begin = ++time;
      // Each lives until the next begins; the fifth was given back then, too, but another stream
      // used it four requests longer, and in the last iteration six.
      const bool is_used_elsewhere = r == 5;
      const int64_t until = is_used_elsewhere ? begin + (i == 3 ? 7 : 5) : begin + 1;
      made.requests.push_back({begin, until, 1024 * (r + 1), r % 2, 0, begin + 1});
    }
    iteration.end = made.requests.size();
    iteration.upper = time + 1;
    made.iterations.whole.push_back(iteration);
  }
  made.iterations.kinds = 1;
  made.iterations.source = BoundarySource::marks;
  return made;
}

TEST(PlanMaker, StreamsShareNoBytes) {
  const TwoStreams made = two_streams();
  const RequestClasses classes = classify_requests(made.requests, made.iterations);
  const SlotFinder finder(made.requests, made.iterations);
  const MemoryPlan plan = make_plan({made.requests, made.iterations, classes, finder}, quick());
  ASSERT_TRUE(check_plan(plan));
  ASSERT_EQ(plan.streams.size(), 2u);
  // Alone on its stream at each moment: the longest of each.
  EXPECT_EQ(plan.streams[0].range.size, 19 * 1024);
  EXPECT_GE(plan.streams[1].range.size, 20 * 1024);
  for (const PlannedSlot& slot : plan.signatures[0].slots) {
    const AddressRange range = plan.streams[slot.stream].range;
    EXPECT_GE(slot.offset, range.offset);
    EXPECT_LE(slot.offset + slot.largest, range.offset + range.size);
  }
}

TEST(PlanMaker, ASecondStreamKeepsItsBlock) {
  const TwoStreams unreleased = two_streams();
  TwoStreams made = unreleased;
  for (size_t i = 5; i < made.requests.size(); i += 20) {
    made.requests[i].released = made.requests[i].lower + 1;
  }
  const auto ends_of_fifth = [](const TwoStreams& run) {
    const RequestClasses classes = classify_requests(run.requests, run.iterations);
    const SlotFinder finder(run.requests, run.iterations);
    return make_plan({run.requests, run.iterations, classes, finder}, quick())
        .signatures[0]
        .slots[5]
        .ends;
  };
  for (size_t i = 5; i < made.requests.size(); i += 20) EXPECT_GT(made.requests[i].upper, 0);
  TwoStreams waited_for = made;
  for (RecordedRequest& request : waited_for.requests) request.released = request.upper;
  EXPECT_EQ(ends_of_fifth(waited_for), 12u);  // the latest completion that was seen
  EXPECT_EQ(ends_of_fifth(made), 16u);        // and half of the longest delay, 7 slots, beyond
}

}  // namespace
}  // namespace headroom::memory
