// The simulator where it degenerates to queues whose formulas are known, and what holds in any.
#include "serving/engine_simulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "serving/open_load.h"

namespace headroom::serving {
namespace {

constexpr size_t kMany = 60'000;

// t(n) = base + slope n, whatever the contexts are.
IterationLaw line(double base, double slope, std::vector<PromptKnot> prompts = {}) {
  return IterationLaw({{1, base + slope, 0}, {1000, base + 1000 * slope, 0}}, 1,
                      PrefillLaw({{1, 0}}, std::move(prompts)));
}

struct Means {
  double wait = 0;  // to the first token
  double e2e = 0;
  double e2e_p95 = 0;
};

Means means_of(const SimulatedRun& run) {
  Means means;
  std::vector<double> e2e;
  const auto count = static_cast<double>(run.requests.size());
  for (const RequestOutcome& request : run.requests) {
    means.wait += (request.first_token - request.arrived) / count;
    means.e2e += (request.ended - request.arrived) / count;
    e2e.push_back(request.ended - request.arrived);
  }
  std::sort(e2e.begin(), e2e.end());
  means.e2e_p95 = nearest_rank(e2e, 0.95);
  return means;
}

SimulationOptions at_rate(double rate) { return {.stretch = 1 / rate}; }

TEST(Simulator, OneAtATimeOfOneLengthIsTheQueueMD1) {
  // 10 ms each: the mean wait in the queue is rho D / (2 (1 - rho)) (Pollaczek and Khinchine).
  const Arrivals arrivals = poisson_arrivals({{1, 10}}, kMany, 1);
  for (const double rho : {0.3, 0.7}) {
    const SimulatedRun run =
        simulate(arrivals, line(0.001, 0), {.max_num_seqs = 1}, at_rate(rho / 0.010));
    const double wait = rho * 0.010 / (2 * (1 - rho));
    EXPECT_NEAR(means_of(run).e2e, 0.010 + wait, 0.04 * wait) << rho;
    EXPECT_NEAR(means_of(run).wait, 0.001 + wait, 0.04 * wait) << rho;
  }
}

TEST(Simulator, ExponentialLengthsOneAtATimeAreTheQueueMM1) {
  // A prompt token takes 1 us, a prompt 10^4 of them on average. The time in the system is
  // exponential with mean 1 / (mu - lambda).
  std::mt19937_64 random(7);
  Arrivals arrivals = poisson_arrivals({{1, 1}}, kMany, 2);
  for (ArrivingRequest& request : arrivals.requests) {
    const double share = static_cast<double>(random() >> 11) * 0x1.0p-53;
    request.input_tokens = 1 + static_cast<int64_t>(-std::log1p(-share) * 10'000);
  }
  const IterationLaw law = line(1e-9, 0, {{1e6, 1.0}});
  const EngineLimits limits{.max_num_seqs = 1, .max_num_batched_tokens = 1'000'000};
  const Means means = means_of(simulate(arrivals, law, limits, at_rate(60)));
  EXPECT_NEAR(means.e2e, 1 / (100.0 - 60), 0.05 / (100.0 - 60));
  EXPECT_NEAR(means.e2e_p95, std::log(20) / (100.0 - 60), 0.06 * std::log(20) / (100.0 - 60));
}

TEST(Simulator, StepsInProportionToTheBatchShareTheProcessor) {
  // M/G/1-PS: the mean time in the system is S / (1 - rho) whatever the distribution of lengths.
  // 200 tokens of 50 us are S = 10 ms; arrivals wait for the end of an iteration besides.
  const double rho = 0.6;
  const std::vector<std::vector<formats::RequestLengths>> of_one_mean = {
      {{1, 200}}, {{1, 20}, {1, 380}}, {{1, 100}, {1, 100}, {1, 100}, {1, 500}}};
  for (const auto& lengths : of_one_mean) {
    const Arrivals arrivals = poisson_arrivals(lengths, kMany / 2, 3);
    const SimulatedRun run = simulate(arrivals, line(0, 50e-6), {}, at_rate(rho / 0.010));
    EXPECT_NEAR(means_of(run).e2e, 0.010 / (1 - rho), 0.05 * 0.010 / (1 - rho)) << lengths.size();
  }
}

TEST(Simulator, StepsOfOneLengthServeAnyNumberAtOnce) {
  // M/G/inf: rate x time of a request are in the batch.
  const Arrivals arrivals = poisson_arrivals({{1, 40}, {1, 160}}, kMany, 4);
  const SimulatedRun run = simulate(arrivals, line(0.010, 0), {.max_num_seqs = 1000}, at_rate(50));
  EXPECT_NEAR(run.in_batch_seconds / run.seconds, 50 * 100 * 0.010, 1);
  // Steps follow on each other: who comes waits half of one on average.
  EXPECT_NEAR(means_of(run).e2e, 100.5 * 0.010, 0.01);
}

TEST(Simulator, AClosedLoopOfSoManyStepsAsTheLawSays) {
  Arrivals arrivals = poisson_arrivals({{50, 40}, {150, 160}}, 4000, 5);
  for (const int64_t batch : {1, 8, 64}) {
    for (const bool is_chunked : {true, false}) {
      const SimulatedRun run = simulate(arrivals, line(0.004, 0.0002, {{100, 0.002}}),
                                        {.max_num_seqs = batch, .has_chunked_prefill = is_chunked},
                                        {.closed_loop = batch, .to = 3500});
      double tokens = 0;
      for (const RequestOutcome& request : run.requests) {
        if (request.is_ended) tokens += static_cast<double>(request.output_tokens);
      }
      // A prompt of p tokens takes 20 us p where the others go on. Where they wait for it, it takes
      // a step of its own besides, in which it is given its first token, or shares one with others.
      const auto n = static_cast<double>(batch);
      const double step = 0.004 + 0.0002 * n;
      const double least = step / n + 0.002 / 100;
      const double most = step / n + (0.0042 + 0.002 - step / n) / 100;
      EXPECT_GE(run.seconds / tokens, 0.97 * least) << batch;
      EXPECT_LE(run.seconds / tokens, 1.03 * (is_chunked ? least : most)) << batch;
      if (!is_chunked && batch == 8) {
        EXPECT_GE(run.seconds / tokens, 0.97 * most);
      }
    }
  }
}

TEST(Simulator, ALongPromptIsReadInPiecesOrHoldsUpTheOthers) {
  Arrivals arrivals;
  arrivals.requests = {{0, 1, 100}, {0.0501, 4096, 2}};
  const IterationLaw law = line(0.010, 0, {{4096, 0.4096}});  // 0.1 ms a token
  const auto longest_gap = [&](bool is_chunked) {
    const SimulatedRun run =
        simulate(arrivals, law, {.max_num_batched_tokens = 513, .has_chunked_prefill = is_chunked},
                 {.to = 1});
    return run.gaps.quantile(1);
  };
  EXPECT_NEAR(longest_gap(true), 0.010 + 0.0512, 1e-4);
  EXPECT_NEAR(longest_gap(false), 0.010 + 0.4096 + 0.010, 1e-3);  // alone, beyond the budget
}

TEST(Simulator, WithoutBlocksTheLastIsPreemptedAndReadAgain) {
  // Two sequences of 8 blocks each at their ends, 12 blocks in all.
  Arrivals arrivals;
  arrivals.requests = {{0, 16, 112}, {0, 16, 112}};
  const SimulatedRun run = simulate(arrivals, line(0.010, 0), {.kv_blocks = 12});
  EXPECT_EQ(run.preemptions, 1);
  EXPECT_LE(run.most_blocks, 12);
  EXPECT_EQ(run.blocks_at_end, 0);
  EXPECT_NEAR(run.requests[0].ended, 1.12, 1e-6);  // as if alone
  EXPECT_GT(run.requests[1].ended, run.requests[0].ended);
  EXPECT_GT(run.prompt_tokens_computed, 16 + 16 + 80);
  EXPECT_TRUE(run.requests[1].is_ended);
}

TEST(Simulator, WhatTheCacheCannotHoldIsRefused) {
  Arrivals arrivals;
  arrivals.requests = {{0, 100, 100}, {0, 10, 10}};
  const SimulatedRun run = simulate(arrivals, line(0.010, 0), {.kv_blocks = 12});
  EXPECT_TRUE(run.requests[0].is_refused);
  EXPECT_FALSE(run.requests[0].is_ended);
  EXPECT_TRUE(run.requests[1].is_ended);
}

// Two prompts that begin with the same two hashes, one after the other.
Arrivals alike() {
  Arrivals arrivals;
  arrivals.requests = {{0, 1500, 2}, {10, 1500, 2}};
  arrivals.hashes = {1, 2, 3, 1, 2, 4};
  arrivals.first_hash = {0, 3, 6};
  return arrivals;
}

TEST(Simulator, APromptThatBeginsAsAnotherIsReadFromThereOn) {
  const IterationLaw law = line(0.010, 0, {{1000, 0.1}});
  const SimulatedRun run = simulate(alike(), law, {});
  EXPECT_EQ(run.prompt_tokens_cached, 1024);  // the third hash stands for 476 tokens, no whole one
  EXPECT_NEAR(run.requests[0].first_token - run.requests[0].arrived, 0.010 + 0.15, 1e-9);
  EXPECT_NEAR(run.requests[1].first_token - run.requests[1].arrived, 0.010 + 0.0476, 1e-9);
  EXPECT_EQ(run.blocks_at_end, 0);
}

TEST(Simulator, AWholePromptThatIsCachedStillComputesItsLastToken) {
  Arrivals arrivals = alike();
  arrivals.requests = {{0, 1024, 2}, {10, 1024, 2}};
  const SimulatedRun run = simulate(arrivals, line(0.010, 0, {{1000, 0.1}}), {});
  EXPECT_EQ(run.prompt_tokens_cached, 1023);
  EXPECT_NEAR(run.requests[1].first_token - run.requests[1].arrived, 0.0101, 1e-9);
}

TEST(Simulator, PrefixesAreEvictedForWhatIsNeeded) {
  Arrivals arrivals = alike();
  arrivals.requests.insert(arrivals.requests.begin() + 1, {5, 1500, 2});
  arrivals.hashes = {1, 2, 3, 7, 8, 9, 1, 2, 4};
  arrivals.first_hash = {0, 3, 6, 9};
  const auto cached = [&](int64_t blocks) {
    return simulate(arrivals, line(0.010, 0), {.kv_blocks = blocks}).prompt_tokens_cached;
  };
  EXPECT_EQ(cached(1000), 1024);
  EXPECT_EQ(cached(94 + 32), 512);  // of one sequence its last hash goes first
  EXPECT_EQ(cached(94), 0);
}

// Anything that may come, on an engine that is too small for it.
struct Scene {
  Arrivals arrivals;
  EngineLimits limits;
};

Scene random_scene(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  Scene scene;
  scene.limits.max_num_seqs = 1 + below(20);
  scene.limits.max_num_batched_tokens = 1 + below(600);
  scene.limits.has_chunked_prefill = below(2) == 0;
  scene.limits.kv_blocks = 20 + below(200);
  scene.arrivals.hash_tokens = 32;
  double at = 0;
  for (int i = 0; i < 200; ++i) {
    at += 0.02 * static_cast<double>(below(4));
    scene.arrivals.requests.push_back({at, 1 + below(300), 1 + below(100)});
    scene.arrivals.first_hash.push_back(scene.arrivals.hashes.size());
    for (int64_t hash = below(8); hash > 0; --hash) {
      scene.arrivals.hashes.push_back(static_cast<uint64_t>(below(6)));  // repeated, too
    }
  }
  scene.arrivals.first_hash.push_back(scene.arrivals.hashes.size());
  return scene;
}

TEST(Simulator, WhatHoldsAlways) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Scene scene = random_scene(seed);
    const SimulatedRun run =
        simulate(scene.arrivals, line(0.002, 0.0005, {{100, 0.004}}), scene.limits);
    double waited = 0;
    int64_t gaps = 0;
    int64_t prompts = 0;
    for (size_t i = 0; i < run.requests.size(); ++i) {
      const RequestOutcome& request = run.requests[i];
      const ArrivingRequest& asked = scene.arrivals.requests[i];
      ASSERT_NE(request.is_ended, request.is_refused) << seed;
      if (request.is_refused) {
        const int64_t blocks = (asked.input_tokens + asked.output_tokens + 15) / 16;
        ASSERT_GT(blocks, scene.limits.kv_blocks);
        continue;
      }
      waited += request.ended - request.arrived;
      gaps += request.output_tokens - 1;
      prompts += asked.input_tokens;
      ASSERT_GE(request.first_token - request.arrived, 0.0025 - 1e-12);
      ASSERT_GE(request.ended - request.first_token,
                0.0025 * static_cast<double>(request.output_tokens - 1) - 1e-9);
    }
    // Little's law, exactly: the integral of how many are there is what they stay.
    ASSERT_NEAR(run.in_system_seconds, waited, 1e-9 * waited) << seed;
    ASSERT_EQ(run.gaps.count(), gaps);
    ASSERT_LE(run.in_batch_seconds,
              static_cast<double>(scene.limits.max_num_seqs) * run.seconds + 1e-9);
    ASSERT_EQ(run.blocks_at_end, 0);
    ASSERT_LE(run.most_blocks, scene.limits.kv_blocks);
    ASSERT_GE(run.prompt_tokens_computed + run.prompt_tokens_cached, prompts);
    if (run.preemptions == 0) {
      ASSERT_EQ(run.prompt_tokens_computed + run.prompt_tokens_cached, prompts) << seed;
    }
  }
}

TEST(Simulator, TheSameInputGivesTheSameOutput) {
  const Scene scene = random_scene(3);
  const IterationLaw law = line(0.002, 0.0005);
  const SimulatedRun one = simulate(scene.arrivals, law, scene.limits);
  const SimulatedRun other = simulate(scene.arrivals, law, scene.limits);
  for (size_t i = 0; i < one.requests.size(); ++i) {
    ASSERT_EQ(one.requests[i].ended, other.requests[i].ended);
  }
}

TEST(Simulator, FirstComeFirstServed) {
  Scene scene = random_scene(11);
  scene.limits.kv_blocks = 100'000;
  const SimulatedRun run = simulate(scene.arrivals, line(0.002, 0.0005), scene.limits);
  for (size_t i = 1; i < run.requests.size(); ++i) {
    ASSERT_LE(run.requests[i - 1].first_token, run.requests[i].first_token);
  }
}

TEST(IterationLaw, CachedTokensBesideTheMeanCountWhatTheyTake) {
  const IterationLaw law({{1, 0.010, 1e-6}, {3, 0.020, 1e-6}}, 100);
  EXPECT_NEAR(law.decode_seconds(2, 200), 0.015, 1e-12);
  EXPECT_NEAR(law.decode_seconds(2, 1200), 0.016, 1e-12);
  EXPECT_NEAR(law.decode_seconds(5, 500), 0.030, 1e-12);
}

}  // namespace
}  // namespace headroom::serving
