// Watching simulated servers: their clock is the steps' own, so an hour takes milliseconds.
#include "batch/watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <queue>
#include <random>

#include "batch/curve.h"

namespace headroom::batch {
namespace {

using Random = std::mt19937_64;

// The lengths of requests; `tail` says how outputs scatter about their mean.
enum class Tail : uint8_t { fixed, exponential, lognormal, pareto };

struct Lengths {
  double input = 161;
  double output = 338;
  Tail tail = Tail::exponential;
};

int64_t draw(Random& random, double mean, Tail tail) {
  std::uniform_real_distribution<double> uniform(1e-12, 1);
  double value = mean;
  if (tail == Tail::exponential) value = -mean * std::log(uniform(random));
  if (tail == Tail::lognormal) {
    constexpr double kSigma = 1.2;
    std::normal_distribution<double> normal(-kSigma * kSigma / 2, kSigma);
    value = mean * std::exp(normal(random));
  }
  if (tail == Tail::pareto) {
    constexpr double kAlpha = 1.8;  // its variance is infinite
    value = mean * (kAlpha - 1) / kAlpha * std::pow(uniform(random), -1 / kAlpha);
  }
  constexpr double kContext = 32768;
  return std::max<int64_t>(1, std::llround(std::min(value, kContext)));
}

// Steps of a + b n + kv k (1 + noise z) + prefill, now and then a stall; `slots` sequences in a
// closed loop. What it counts is what a server's metrics are.
class SimulatedServer {
 public:
  double base = 8e-3, per_sequence = 0.1e-3, per_kv_token = 4e-7, per_prompt_token = 5e-6;
  double noise = 0.01;
  double stalls_per_hour = 0;  // of half a second each
  double slots = 48;
  Lengths lengths;
  serving::ServerMetrics metrics;
  double now = 0;

  explicit SimulatedServer(uint64_t seed) : random_(seed) {
    metrics.itl_seconds = metrics.itl_count = metrics.prompt_tokens = 0;
    metrics.output_tokens = metrics.answered = metrics.preemptions = 0;
    metrics.engines = 1;
  }

  // With so many in flight, on average, under `lengths`.
  [[nodiscard]] double law(double n) const {
    const double variation = lengths.tail == Tail::exponential ? 1 : 0;
    const double context = lengths.input + lengths.output * (1 + variation * variation) / 2;
    return base + n * (per_sequence + per_kv_token * context +
                       per_prompt_token * lengths.input / lengths.output);
  }

  void run_until(double end) {
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    while (now < end) {
      int64_t fresh = 0;
      double prefill = 0;
      while (static_cast<double>(running_.size()) < slots) {
        const int64_t input = draw(random_, lengths.input, lengths.tail);
        const int64_t output = draw(random_, lengths.output, lengths.tail);
        running_.push({step_ + output, input + output});
        cached_ += static_cast<double>(input);
        prefill += static_cast<double>(input);
        ++fresh;
      }
      const auto n = static_cast<double>(running_.size());
      double seconds = (base + per_sequence * n + per_kv_token * cached_) *
                           std::max(0.1, 1 + noise * normal(random_)) +
                       per_prompt_token * prefill;
      if (uniform(random_) < stalls_per_hour * seconds / 3600) seconds += 0.5;
      now += seconds;
      ++step_;
      cached_ += n;
      *metrics.itl_seconds += (n - static_cast<double>(fresh)) * seconds;
      *metrics.itl_count += n - static_cast<double>(fresh);
      *metrics.prompt_tokens += prefill;
      *metrics.output_tokens += n;
      while (!running_.empty() && running_.top().last_step <= step_) {
        cached_ -= static_cast<double>(running_.top().tokens);
        running_.pop();
        *metrics.answered += 1;
      }
      metrics.running = n;
      metrics.waiting = 0;
      metrics.kv_share = std::min(1.0, cached_ / 1e6);
    }
  }

 private:
  struct Running {
    int64_t last_step;
    int64_t tokens;  // that it holds at its end
    bool operator<(const Running& other) const { return last_step > other.last_step; }
  };
  Random random_;
  std::priority_queue<Running> running_;
  int64_t step_ = 0;
  double cached_ = 0;
};

// What an earlier --url would have measured under these lengths.
StepBase measured_base(const SimulatedServer& server, uint64_t seed) {
  Random random(seed);
  std::normal_distribution<double> normal;
  std::vector<formats::ServingPoint> points;
  for (const int64_t batch : {1, 16, 64, 256}) {
    const auto n = static_cast<double>(batch);
    const double seconds = server.law(n) * (1 + 0.005 * normal(random));
    points.push_back(
        {.batch = batch, .throughput_tokens_per_second = n / seconds, .itl_seconds = seconds});
  }
  auto base = base_of_points(points, "sweep.csv");
  EXPECT_TRUE(base);
  return *std::move(base);
}

int64_t best_by_truth(const SimulatedServer& server, const WatchOptions& options) {
  int64_t best = 0;
  for (const int64_t batch : usual_limits(1, 256)) {
    const auto n = static_cast<double>(batch);
    const double target =
        options.slo->seconds
            ? *options.slo->seconds
            : options.slo->multiple * server.law(static_cast<double>(options.slo->at_batch));
    if (server.law(n) <= target && server.law(1) > options.min_efficiency * server.law(n)) {
      best = batch;
    }
  }
  return best;
}

constexpr double kEvery = 5;

struct Said {
  double seconds;
  WatchReport report;
};

// What is said from now until `end`.
std::vector<Said> watch(SimulatedServer& server, Watcher& watcher, double end) {
  std::vector<Said> said;
  MetricsSample before{server.now, server.metrics};
  while (server.now < end) {
    server.run_until(before.seconds + kEvery);
    const MetricsSample after{server.now, server.metrics};
    const SliceReading reading = slice_between(before, after);
    before = after;
    if (reading.fault != SliceFault::none) continue;
    WatchReport report = watcher.observe(reading.slice);
    if (report.event != WatchEvent::none) said.push_back({server.now, std::move(report)});
  }
  return said;
}

WatchOptions in_time(double seconds) {
  WatchOptions options;
  options.slo = ItlTarget{.seconds = seconds};
  return options;
}

// So many hours, and changes, of each kind; docs/measurements has more of them.
int seeds() {
  const char* const asked = std::getenv("HEADROOM_WATCH_SEEDS");
  return asked != nullptr ? std::max(1, std::atoi(asked)) : 4;
}

// Targets spread over 30 ms from `least` on: wherever B_opt's edges are.
WatchOptions options_of(int seed, double least) {
  return in_time(least + 30e-3 * (seed + 0.5) / seeds());
}

struct Noise {
  const char* name;
  Tail tail;
  double noise;
  double stalls_per_hour;
  double most_alarms_an_hour;
};

constexpr Noise kNoises[] = {
    {"fixed lengths, 1 % a step", Tail::fixed, 0.01, 0, 0},
    {"exponential lengths, 1 % a step", Tail::exponential, 0.01, 0, 0},
    {"exponential lengths, 10 % a step, 60 stalls an hour", Tail::exponential, 0.10, 60, 0},
    {"lognormal lengths (sigma 1.2), 5 % a step", Tail::lognormal, 0.05, 0, 1},
    {"Pareto lengths (alpha 1.8), 5 % a step, 60 stalls an hour", Tail::pareto, 0.05, 60, 1},
};

TEST(Watch, AnHourOfStationaryNoiseRaisesNoAlarm) {
  for (const Noise& noise : kNoises) {
    int alarms = 0;
    for (int seed = 0; seed < seeds(); ++seed) {
      SimulatedServer server(static_cast<uint64_t>(seed) + 1);
      server.lengths.tail = noise.tail;
      server.noise = noise.noise;
      server.stalls_per_hour = noise.stalls_per_hour;
      server.run_until(600);
      Watcher watcher(options_of(seed, 20e-3), measured_base(server, static_cast<uint64_t>(seed)));
      const auto said = watch(server, watcher, 600 + 3600);
      ASSERT_GE(said.size(), 1U);
      EXPECT_EQ(said.front().report.event, WatchEvent::first);
      alarms += static_cast<int>(said.size()) - 1;
    }
    std::printf("%s: %d alarms in %d hours\n", noise.name, alarms, seeds());
    EXPECT_LE(alarms, noise.most_alarms_an_hour * seeds()) << noise.name;
  }
}

// Prompts from `input` to `factor` times that, after twenty minutes.
struct Counts {
  int said_in_a_minute = 0, said = 0, right = 0, near = 0, unchanged = 0, several = 0;
};

Counts changes(double input, double factor, double least_target) {
  Counts counts;
  for (int seed = 0; seed < seeds(); ++seed) {
    SimulatedServer server(static_cast<uint64_t>(seed) + 1);
    server.lengths.input = input;
    const WatchOptions options = options_of(seed, least_target);
    server.run_until(120);
    Watcher watcher(options, measured_base(server, static_cast<uint64_t>(seed)));
    EXPECT_EQ(watch(server, watcher, 1320).size(), 1U);
    const int64_t before = best_by_truth(server, options);
    const double changed = server.now;
    server.lengths.input *= factor;
    const int64_t truth = best_by_truth(server, options);
    counts.unchanged += truth == before ? 1 : 0;
    const auto said = watch(server, watcher, changed + 600);
    if (said.empty()) continue;
    ++counts.said;
    counts.said_in_a_minute += said[0].seconds - changed <= 60 ? 1 : 0;
    counts.several += said.size() > 1 ? 1 : 0;
    const double ratio =
        static_cast<double>(said[0].report.advice.batch.value_or(0)) / static_cast<double>(truth);
    counts.right += ratio == 1 ? 1 : 0;
    counts.near += ratio > 0.6 && ratio < 1.6 ? 1 : 0;  // the candidates beside it
  }
  std::printf(
      "prompts of %g, times %g: %d of %d leave B_opt as it is; said in 60 s %d, in 10 min "
      "%d; right %d, right or beside it %d; more than once %d\n",
      input, factor, counts.unchanged, seeds(), counts.said_in_a_minute, counts.said, counts.right,
      counts.near, counts.several);
  return counts;
}

TEST(Watch, MuchLongerPromptsAreSaidWithinAMinute) {
  const Counts counts = changes(161, 9, 25e-3);
  EXPECT_EQ(counts.said_in_a_minute, seeds());
  EXPECT_EQ(counts.near, seeds());
  EXPECT_EQ(counts.several, 0);
}

TEST(Watch, SmallerChangesAreSaidLater) {
  for (const double factor : {1.5, 2.0, 3.0, 5.0}) {
    const Counts counts = changes(161, factor, 25e-3);
    EXPECT_EQ(counts.near, counts.said) << factor;
  }
}

TEST(Watch, ShorterPromptsAreSaidToo) {
  const Counts much = changes(2000, 0.1, 40e-3);
  EXPECT_EQ(much.said, seeds());
  EXPECT_EQ(much.near, seeds());
  for (const double factor : {0.2, 0.5}) {
    const Counts counts = changes(1000, factor, 25e-3);
    EXPECT_EQ(counts.near, counts.said) << factor;
  }
}

// Steps that would allow more than the cache holds: 24 in flight fill six tenths of it.
TEST(Watch, TheCacheBoundsTheLimit) {
  SimulatedServer server(7);
  server.lengths.tail = Tail::fixed;
  Watcher watcher(in_time(40e-3), measured_base(server, 7));
  TrafficSlice slice{.seconds = 5, .in_flight = 24, .itl_seconds = 0.0124, .tokens = 9677};
  slice.kv_share = 0.6;
  WatchReport report;
  for (int i = 0; i < 12; ++i) report = watcher.observe(slice);
  ASSERT_TRUE(report.advice.batch);
  EXPECT_EQ(*report.advice.batch, 32);  // 40 would fill it
  EXPECT_EQ(report.advice.bound, Bound::memory);
  slice.kv_share = 0.1;
  for (int i = 0; i < 60; ++i) report = watcher.observe(slice);
  EXPECT_GT(*report.advice.batch, 32);
}

TEST(Watch, ANightWithFewInFlightIsNoChange) {
  SimulatedServer server(5);
  server.run_until(120);
  Watcher watcher(in_time(40e-3), measured_base(server, 5));
  ASSERT_EQ(watch(server, watcher, 1200).size(), 1U);
  double end = 1200;
  for (const double slots : {20.0, 5.0, 1.0, 2.0, 10.0, 48.0, 70.0}) {
    server.slots = slots;
    end += 600;
    EXPECT_TRUE(watch(server, watcher, end).empty()) << slots;
  }
}

TEST(Watch, TheLawIsLearnedWhileTheTrafficVaries) {
  SimulatedServer server(6);
  const WatchOptions options = in_time(30e-3);
  server.run_until(60);
  Watcher watcher(options, std::nullopt);
  EXPECT_TRUE(watch(server, watcher, 300).empty());
  EXPECT_FALSE(watcher.base()) << "one point makes no line";
  std::vector<Said> said;
  double end = 300;
  for (const double slots : {40.0, 30.0, 20.0, 10.0, 5.0, 30.0, 48.0}) {
    server.slots = slots;
    end += 120;
    for (Said& one : watch(server, watcher, end)) said.push_back(std::move(one));
  }
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].report.event, WatchEvent::first);
  EXPECT_EQ(said[0].report.provenance, Provenance::calibrated);
  ASSERT_TRUE(watcher.base());
  EXPECT_NEAR(watcher.base()->seconds(1), server.law(1), 0.25 * server.law(1));
  server.lengths.input = 1500;
  said = watch(server, watcher, end + 120);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_LE(said[0].seconds - end, 65);
  const double truth = static_cast<double>(best_by_truth(server, options));
  EXPECT_NEAR(static_cast<double>(*said[0].report.advice.batch), truth, 0.5 * truth);
}

TEST(Watch, ALimitThatIsWrongFromTheBeginning) {
  SimulatedServer server(7);
  WatchOptions options = in_time(30e-3);
  const int64_t best = best_by_truth(server, options);
  options.limit = 4 * best;
  server.run_until(60);
  Watcher watcher(options, measured_base(server, 7));
  const auto said = watch(server, watcher, 120);
  ASSERT_EQ(said.size(), 1U);
  const WatchReport& report = said[0].report;
  EXPECT_EQ(report.event, WatchEvent::change);
  EXPECT_EQ(report.limit, 4 * best);
  EXPECT_EQ(report.limit_after, best);
  ASSERT_TRUE(report.at_opt && report.at_limit);
  // What it pays is what the law says.
  const auto check = [&](const WatchFigures& figures, int64_t batch) {
    const double truth = server.law(static_cast<double>(batch));
    EXPECT_LT(figures.itl_seconds.low, truth);
    EXPECT_GT(figures.itl_seconds.high, truth);
    EXPECT_NEAR(figures.itl_seconds.expected, truth, 0.15 * truth);
    EXPECT_NEAR(figures.throughput_tokens_per_second.expected, static_cast<double>(batch) / truth,
                0.15 * static_cast<double>(batch) / truth);
  };
  check(*report.at_opt, best);
  check(*report.at_limit, 4 * best);
}

// What is said of a change counts each slice once, though the report was begun before it.
TEST(Watch, AChangeTellsOfItsSlicesOnce) {
  SimulatedServer server(7);
  WatchOptions options = in_time(30e-3);
  options.limit = 4 * best_by_truth(server, options);
  server.run_until(60);
  Watcher watcher(options, measured_base(server, 7));
  MetricsSample before{server.now, server.metrics};
  double slices = 0;
  while (server.now < 120) {
    server.run_until(before.seconds + kEvery);
    const MetricsSample after{server.now, server.metrics};
    SliceReading reading = slice_between(before, after);
    before = after;
    if (reading.fault != SliceFault::none) continue;
    reading.slice.preemptions = 1;
    ++slices;
    const WatchReport report = watcher.observe(reading.slice);
    if (report.event == WatchEvent::none) continue;
    EXPECT_EQ(report.event, WatchEvent::change);
    EXPECT_EQ(report.preemptions, slices);
    return;
  }
  FAIL() << "nothing was said";
}

TEST(Watch, AMultipleAsTargetAndTheEfficiency) {
  SimulatedServer server(8);
  WatchOptions options;
  options.slo = ItlTarget{.seconds = std::nullopt, .multiple = 2, .at_batch = 32};
  server.run_until(60);
  Watcher by_multiple(options, measured_base(server, 8));
  auto said = watch(server, by_multiple, 120);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].report.advice.batch, best_by_truth(server, options));
  EXPECT_EQ(said[0].report.advice.bound, Bound::latency);

  options.slo.reset();
  options.min_efficiency = 0.3;
  Watcher by_efficiency(options, measured_base(server, 8));
  said = watch(server, by_efficiency, 180);
  ASSERT_EQ(said.size(), 1U);
  const auto batch = static_cast<double>(*said[0].report.advice.batch);
  EXPECT_GT(server.law(1) / server.law(batch), 0.28);
  EXPECT_LT(server.law(1) / server.law(1.6 * batch), 0.32);
  EXPECT_EQ(said[0].report.advice.bound, Bound::efficiency);
}

TEST(Watch, NoBatchMeetsTheTarget) {
  SimulatedServer server(9);
  server.run_until(60);
  Watcher watcher(in_time(5e-3), measured_base(server, 9));
  const auto said = watch(server, watcher, 300);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_FALSE(said[0].report.advice.batch);
  EXPECT_EQ(said[0].report.limit_after, 0);
}

// Two readings five seconds apart.
std::pair<MetricsSample, MetricsSample> readings() {
  MetricsSample before{10, {}};
  before.metrics.itl_seconds = 100;
  before.metrics.itl_count = 5000;
  MetricsSample after{15, before.metrics};
  *after.metrics.itl_seconds += 200;
  *after.metrics.itl_count += 10000;
  after.metrics.engines = 2;
  return {before, after};
}

TEST(WatchSlice, InFlightIsLittlesLaw) {
  const auto [before, after] = readings();
  const SliceReading reading = slice_between(before, after);
  ASSERT_EQ(reading.fault, SliceFault::none);
  EXPECT_DOUBLE_EQ(reading.slice.in_flight, 20);  // of each of two engines
  EXPECT_DOUBLE_EQ(reading.slice.itl_seconds, 0.02);
  EXPECT_DOUBLE_EQ(reading.slice.seconds, 5);
}

TEST(WatchSlice, WhatSaysNothingIsNamed) {
  auto [before, after] = readings();
  EXPECT_EQ(slice_between(after, before).fault, SliceFault::restarted);
  EXPECT_EQ(slice_between(before, {15, before.metrics}).fault, SliceFault::idle);
  EXPECT_EQ(slice_between(before, {15, {}}).fault, SliceFault::no_figures);
  EXPECT_EQ(slice_between({10, {}}, after).fault, SliceFault::no_figures);
  EXPECT_EQ(slice_between(before, {10, after.metrics}).fault, SliceFault::no_figures);
  after.metrics.itl_seconds = 1e14;
  EXPECT_EQ(slice_between(before, after).fault, SliceFault::absurd);
  after.metrics.itl_seconds = before.metrics.itl_seconds;
  EXPECT_EQ(slice_between(before, after).fault, SliceFault::absurd);
}

TEST(WatchBase, PointsOfOneBatchMakeNoLaw) {
  const auto base = base_of_points(
      {{.batch = 4, .throughput_tokens_per_second = 1, .itl_seconds = 0.1}}, "one.csv");
  ASSERT_FALSE(base);
  EXPECT_EQ(base.error().where, "one.csv");
}

}  // namespace
}  // namespace headroom::batch
