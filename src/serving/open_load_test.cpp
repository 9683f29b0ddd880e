#include "serving/open_load.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::serving {
namespace {

// Of one load, the highest that keeps the targets and is answered.
double highest_rate(const OpenLoad& load, double most, double near, const IterationLaw& law,
                    const EngineLimits& limits, const OpenLoadGoal& goal) {
  return serving::highest_rate(most, near, [&](double rate) {
    return simulate_load(load, rate, law, limits, goal).summary.is_kept;
  });
}

TEST(LatencyHistogram, QuantilesToATenthOfAPercent) {
  LatencyHistogram gaps;
  EXPECT_EQ(gaps.quantile(0.5), 0);
  for (int i = 1; i <= 1000; ++i) gaps.add(i * 1e-3);
  EXPECT_NEAR(gaps.quantile(0.5), 0.5, 0.5e-3);
  EXPECT_NEAR(gaps.quantile(0.99), 0.99, 1e-3);
  EXPECT_NEAR(gaps.quantile(1), 1, 1e-3);
  EXPECT_NEAR(gaps.mean(), 0.5005, 1e-9);
  gaps.add(0);
  gaps.add(1e9);  // beyond both ends
  EXPECT_EQ(gaps.count(), 1002);
}

TEST(NearestRank, IsTheLeastThatSoManyAreNotAbove) {
  const std::vector<double> ten = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(nearest_rank(ten, 0.5), 5);
  EXPECT_EQ(nearest_rank(ten, 0.9), 9);
  EXPECT_EQ(nearest_rank(ten, 0.91), 10);
  EXPECT_EQ(nearest_rank(ten, 1), 10);
  EXPECT_EQ(nearest_rank({}, 0.5), 0);
}

// Three requests, a second apart: 0.1, 0.2 and 0.9 s to the first token, then ten gaps.
std::vector<OpenRequest> three() {
  return {{0, 0.1, 1.1, 11, 10, 0, true},
          {1, 1.2, 2.2, 11, 10, 1, true},
          {2, 2.9, 4.9, 11, 10, 10, true}};
}

LatencyHistogram gaps_of_three() {
  LatencyHistogram gaps;
  gaps.add(0.1, 20);
  gaps.add(0.2, 10);
  return gaps;
}

OpenLoadSummary summary_of(const OpenLoadGoal& goal) {
  return summarise_open(three(), 0, 3, 6, gaps_of_three(), goal);
}

TEST(OpenLoad, FiguresByTheirDefinitions) {
  const OpenLoadSummary summary = summary_of({});
  EXPECT_NEAR(summary.of(LatencyMetric::ttft).mean, 0.4, 1e-12);
  EXPECT_NEAR(summary.of(LatencyMetric::ttft).p50, 0.2, 1e-12);
  EXPECT_NEAR(summary.of(LatencyMetric::tpot).p95, 0.2, 1e-12);
  EXPECT_NEAR(summary.of(LatencyMetric::e2e).p99, 2.9, 1e-12);
  EXPECT_EQ(summary.of(LatencyMetric::itl).count, 30);
  EXPECT_NEAR(summary.requests_per_second, 0.5, 1e-12);
  EXPECT_NEAR(summary.throughput_tokens_per_second, 33.0 / 6, 1e-12);
  EXPECT_TRUE(summary.is_kept);
}

TEST(OpenLoad, ARequestIsGoodIfItMeetsEachTarget) {
  const LatencyTarget ttft{LatencyMetric::ttft, 95, 0.5};
  const LatencyTarget itl{LatencyMetric::itl, 90, 0.15};  // one late gap of ten is allowed
  EXPECT_NEAR(summary_of({{ttft}, {}}).attained, 2.0 / 3, 1e-12);
  EXPECT_NEAR(summary_of({{ttft}, {}}).goodput_requests_per_second, 2.0 / 6, 1e-12);
  EXPECT_NEAR(summary_of({{itl}, {}}).attained, 2.0 / 3, 1e-12);
  EXPECT_EQ(summary_of({{LatencyTarget{LatencyMetric::itl, 99, 0.15}}, {}}).attained, 1.0 / 3);
  EXPECT_EQ(summary_of({{LatencyTarget{LatencyMetric::itl, 0, 0.15}}, {}}).attained, 2.0 / 3);
}

TEST(OpenLoad, ATargetIsKeptByItsOwnFigureOrByAShareOfTheRequests) {
  const LatencyTarget half{LatencyMetric::ttft, 50, 0.5};
  const LatencyTarget most{LatencyMetric::ttft, 95, 0.5};
  EXPECT_TRUE(summary_of({{half}, {}}).is_kept);
  EXPECT_FALSE(summary_of({{half, most}, {}}).is_kept);
  EXPECT_NEAR(summary_of({{half, most}, {}}).at_targets[1], 0.9, 1e-12);
  EXPECT_TRUE(summary_of({{half, most}, 0.6}).is_kept);
  EXPECT_FALSE(summary_of({{half, most}, 0.7}).is_kept);
}

TEST(OpenLoad, WhatWasNotAnsweredIsInNoFigureButTheShare) {
  auto requests = three();
  requests[0].is_answered = false;
  const OpenLoadSummary summary = summarise_open(requests, 0, 3, 6, gaps_of_three(), {});
  EXPECT_EQ(summary.unanswered, 1);
  EXPECT_EQ(summary.of(LatencyMetric::ttft).count, 2);
  EXPECT_NEAR(summary.attained, 2.0 / 3, 1e-12);
}

TEST(OpenLoad, FewerThatEndThanComeAreTooManyToCome) {
  auto requests = three();
  requests[2].ended = 100;
  EXPECT_TRUE(summarise_open(requests, 0, 3, 6, gaps_of_three(), {}).is_saturated);
  EXPECT_FALSE(summary_of({}).is_saturated);
}

TEST(OpenLoad, NamesOfTargets) {
  EXPECT_EQ(name_of(LatencyTarget{LatencyMetric::ttft, 95, 1}), "ttft_p95");
  EXPECT_EQ(name_of(LatencyTarget{LatencyMetric::e2e, 99.9, 1}), "e2e_p99.9");
  EXPECT_EQ(name_of(LatencyTarget{LatencyMetric::itl, 0, 1}), "itl_mean");
}

TEST(OpenLoad, PoissonArrivalsComeAtTheirRateAndByTheSeed) {
  const Arrivals arrivals = poisson_arrivals({{3, 4}, {5, 6}}, 40'000, 9);
  double squares = 0;
  for (size_t i = 1; i < arrivals.requests.size(); ++i) {
    squares += std::pow(arrivals.requests[i].seconds - arrivals.requests[i - 1].seconds, 2);
  }
  EXPECT_NEAR(arrivals.requests.back().seconds / 40'000, 1, 0.02);
  EXPECT_NEAR(squares / 40'000, 2, 0.1);  // of exponential gaps
  int64_t tokens = 0;
  for (const ArrivingRequest& request : arrivals.requests) tokens += request.output_tokens;
  EXPECT_EQ(tokens, 20'000 * (4 + 6));
  EXPECT_EQ(poisson_arrivals({{3, 4}}, 5, 1).requests[4].seconds,
            poisson_arrivals({{5, 6}}, 5, 1).requests[4].seconds);
  EXPECT_NE(poisson_arrivals({{3, 4}}, 5, 1).requests[4].seconds,
            poisson_arrivals({{3, 4}}, 5, 2).requests[4].seconds);
}

TEST(OpenLoad, AnEngineThatIsMetAtWorkIsInItsSteadyStateFromTheBeginning) {
  // 100 in flight on average, of 1 s each; the first requests that are counted see them already.
  const OpenLoad load{.arrivals = poisson_arrivals({{1, 50}, {1, 150}}, 2000, 3),
                      .natural_rate = 1,
                      .from = 10,
                      .to = 1000};
  const IterationLaw law({{1, 0.0051, 0}, {1000, 0.105, 0}}, 1);  // 5 ms + 0.1 ms n
  // In flight n = 100 rate (5 ms + 0.1 ms n): 50 at a rate of 50.
  const SimulatedLoad run = simulate_load(load, 50, law, {.max_num_seqs = 1000}, {});
  EXPECT_NEAR(run.in_batch_mean, 50, 5);
  EXPECT_FALSE(run.summary.is_saturated);
  OpenLoad idle = load;
  idle.is_met_at_work = false;
  idle.from = 0;
  idle.to = 40;
  OpenLoad at_work = load;
  at_work.from = 0;
  at_work.to = 40;
  const auto itl = [&](const OpenLoad& of) {
    return simulate_load(of, 50, law, {.max_num_seqs = 1000}, {})
        .summary.of(LatencyMetric::itl)
        .mean;
  };
  EXPECT_NEAR(itl(at_work), 0.010, 0.0015);
  EXPECT_LT(itl(idle), itl(at_work));
}

TEST(OpenLoad, ClosedLoopsAnswerWhatTheLawSays) {
  const OpenLoad load{.arrivals = poisson_arrivals({{1, 50}, {1, 150}}, 2000, 3),
                      .natural_rate = 1,
                      .from = 200,
                      .to = 1800};
  const IterationLaw law({{1, 0.0051, 0}, {1000, 0.105, 0}}, 1);
  EXPECT_NEAR(closed_loop_rate(load, 50, law, {.max_num_seqs = 50}), 50, 1.5);
}

TEST(OpenLoad, BeyondItsCapacityAServerWritesWhatItCanHoweverMuchComes) {
  const OpenLoad load{.arrivals = poisson_arrivals({{1, 50}, {1, 150}}, 2000, 3),
                      .natural_rate = 1,
                      .from = 200,
                      .to = 1800};
  const IterationLaw law({{1, 0.0051, 0}, {1000, 0.105, 0}}, 1);
  // 50 in flight write 5000 tokens a second, of 50 requests; at the last rate all come within 0.3
  // s.
  for (const double rate : {100.0, 500.0, 5000.0}) {
    const OpenLoadSummary summary =
        simulate_load(load, rate, law, {.max_num_seqs = 50}, {}).summary;
    EXPECT_TRUE(summary.is_saturated);
    EXPECT_NEAR(summary.throughput_tokens_per_second, 5000, 250) << rate;
    EXPECT_NEAR(summary.throughput_requests_per_second, 50, 8) << rate;
  }
}

TEST(OpenLoad, RecordedArrivalsBeginAgainWithOtherPrompts) {
  formats::RequestTimes times;
  times.arrived_seconds = {0, 1, 4};
  times.hashes = {1, 2, 1};
  times.first_hash = {0, 1, 2, 3};
  times.hash_tokens = 16;
  const Arrivals arrivals = recorded_arrivals({{16, 2}, {0, 4}, {16, 6}}, times, 5);
  ASSERT_EQ(arrivals.requests.size(), 5U);
  EXPECT_EQ(arrivals.requests[1].input_tokens, 1);
  EXPECT_EQ(arrivals.requests[2].seconds, 4);
  EXPECT_EQ(arrivals.requests[3].seconds, 6);  // a mean gap behind
  EXPECT_EQ(arrivals.requests[3].output_tokens, 2);
  EXPECT_EQ(arrivals.hashes_of(0)[0], arrivals.hashes_of(2)[0]);
  EXPECT_NE(arrivals.hashes_of(0)[0], arrivals.hashes_of(3)[0]);
  EXPECT_TRUE(arrivals.hashes_of(1).empty());  // no whole block
}

TEST(OpenLoad, TheHighestRateIsWhereTheFormulaHasIt) {
  // M/D/1 with D = 10 ms: a mean of 25 ms in the system is rho = 0.75.
  OpenLoad load{.arrivals = poisson_arrivals({{1, 1}}, 42'000, 1), .from = 1000, .to = 41'000};
  const IterationLaw law({{1, 0.010, 0}}, 1);
  const OpenLoadGoal goal{{{LatencyMetric::e2e, 0, 0.025}}, {}};
  EXPECT_NEAR(highest_rate(load, 100, 0, law, {.max_num_seqs = 1}, goal), 75, 1.5);
  for (const double near : {1.0, 70.0, 74.9, 76.0, 99.0}) {
    EXPECT_NEAR(highest_rate(load, 100, near, law, {.max_num_seqs = 1}, goal), 75, 1.5) << near;
  }
  const OpenLoadGoal easy{{{LatencyMetric::e2e, 0, 1}}, {}};
  EXPECT_EQ(highest_rate(load, 20, 0, law, {.max_num_seqs = 1}, easy), 20);
  const OpenLoadGoal never{{{LatencyMetric::e2e, 0, 0.009}}, {}};
  EXPECT_EQ(highest_rate(load, 20, 0, law, {.max_num_seqs = 1}, never), 0);
  EXPECT_EQ(highest_rate(load, 20, 7, law, {.max_num_seqs = 1}, never), 0);
  EXPECT_EQ(highest_rate(load, 20, 7, law, {.max_num_seqs = 1}, easy), 20);
  // And without a target: as long as as many end as come.
  EXPECT_NEAR(highest_rate(load, 200, 0, law, {.max_num_seqs = 1}, {}), 100, 6);
}

}  // namespace
}  // namespace headroom::serving
