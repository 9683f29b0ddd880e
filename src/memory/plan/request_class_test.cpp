#include "memory/plan/request_class.h"

#include <gtest/gtest.h>

#include "memory/plan/generated_run.h"

namespace headroom::memory {
namespace {

// What the generator put in at random must come out as dynamic, and hardly anything else.
TEST(RequestClass, WhatIsRandomIsDynamic) {
  size_t random = 0;
  size_t random_found = 0;
  size_t regular = 0;
  size_t regular_found = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const GeneratedRun run = generate_run(seed, {.injected_share = 0.1});
    const Iterations iterations = find_iterations(run.requests);
    const RequestClasses classes = classify_requests(run.requests, iterations);
    ASSERT_EQ(classes.by_request.size(), run.requests.size());
    for (size_t i = 0; i < run.requests.size(); ++i) {
      const RequestClass& request = classes.by_request[i];
      if (request.iteration == kNoIteration || request.lifespan == Lifespan::persistent) continue;
      if (run.places[i] == kNowhere) {
        ++random;
        if (request.recurrence == Recurrence::dynamic) ++random_found;
      } else {
        ++regular;
        if (request.recurrence == Recurrence::fixed) ++regular_found;
      }
    }
  }
  EXPECT_GT(random, 500u);
  EXPECT_EQ(random_found, random);
  EXPECT_GE(static_cast<double>(regular_found), 0.98 * static_cast<double>(regular));
}

TEST(RequestClass, OtherLengthsMakeActivationsDynamic) {
  const GeneratedRun run = generate_run(2, {.iterations = 10, .lengths = 0});
  const Iterations iterations = find_iterations(run.requests);
  const RequestClasses classes = classify_requests(run.requests, iterations);
  size_t dynamic = 0;
  size_t fixed = 0;
  for (const RequestClass& request : classes.by_request) {
    if (request.recurrence == Recurrence::dynamic) ++dynamic;
    if (request.recurrence == Recurrence::fixed) ++fixed;
  }
  EXPECT_GT(dynamic, 1000u);
  EXPECT_GT(fixed, 1000u);  // gradients and the optimizer's
}

// Persistent: weights and states. A step: forward fills, backward drains.
TEST(RequestClass, LifespansArePhases) {
  const GeneratedRun run = generate_run(4, {});
  const Iterations iterations = find_iterations(run.requests);
  ASSERT_EQ(iterations.whole.size(), 6u);
  const RequestClasses classes = classify_requests(run.requests, iterations);
  size_t counts[3] = {};
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const RequestClass& request = classes.by_request[i];
    ++counts[static_cast<size_t>(request.lifespan)];
    const bool is_persistent = request.lifespan == Lifespan::persistent;
    EXPECT_TRUE(run.iterations[i] < 6 || is_persistent) << i;
    EXPECT_TRUE(run.places[i] == kNowhere || !is_persistent) << i;
  }
  EXPECT_EQ(counts[0], 8 * 5 * 3u);
  EXPECT_GT(counts[1], 100u);
  EXPECT_GT(counts[2], 1000u);
  ASSERT_GE(classes.phases.size(), 2 * iterations.whole.size());
  EXPECT_TRUE(classes.phases[0].is_filling);
  EXPECT_FALSE(classes.phases[1].is_filling);
  for (size_t i = 1; i < classes.phases.size(); ++i) {
    EXPECT_EQ(classes.phases[i].lower, classes.phases[i - 1].upper) << i;
  }
}

TEST(RequestClass, WhatWasRecordedOnceIsSaidToBe) {
  const GeneratedRun run = generate_run(1, {.iterations = 1});
  const RequestClasses classes = classify_requests(run.requests, {});
  for (const RequestClass& request : classes.by_request) {
    EXPECT_EQ(request.recurrence, Recurrence::once);
  }
  EXPECT_EQ(classes.by_request[0].lifespan, Lifespan::scoped);  // it began in the recording
  EXPECT_GE(classes.phases.size(), 2u);
}

}  // namespace
}  // namespace headroom::memory
