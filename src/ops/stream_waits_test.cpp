#include "ops/stream_waits.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/horizon.h"
#include "ops/program.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using timing::kNoKernel;
using Kind = formats::TraceEventKind;

constexpr int64_t kUs = 1000;

RanKernel ran(uint32_t stream, int64_t launched_us, int64_t start_us, int64_t end_us) {
  RanKernel kernel;
  kernel.stream = stream;
  kernel.launched_ns = launched_us * kUs;
  kernel.start_ns = start_us * kUs;
  kernel.end_ns = end_us * kUs;
  return kernel;
}

void find(std::vector<RanKernel>& kernels) { find_waits(kernels, 3); }

TEST(StreamWaits, AGuessThatTheRecordingContradictsIsDropped) {
  std::vector<RanKernel> kernels = {ran(0, 0, 10, 500), ran(1, 20, 30, 60), ran(1, 22, 61, 70)};
  kernels[1].waits_for = 0;  // and began long before that ended
  find(kernels);
  EXPECT_EQ(kernels[1].waits_for, kNoKernel);
  kernels[1].waits_for = 0;
  kernels[1].is_wait_recorded = true;
  find(kernels);
  EXPECT_EQ(kernels[1].waits_for, 0U);
}

TEST(StreamWaits, WhatBeganWhenAnotherStreamWasDoneWaitedForIt) {
  std::vector<RanKernel> kernels = {ran(0, 0, 10, 500), ran(1, 20, 502, 600), ran(1, 22, 601, 610)};
  find(kernels);
  EXPECT_EQ(kernels[1].waits_for, 0U);
  EXPECT_FALSE(kernels[1].waits_for_begin);
  EXPECT_EQ(kernels[2].waits_for, kNoKernel);
}

TEST(StreamWaits, NothingWaitsForWhatWasLaunchedLater) {
  std::vector<RanKernel> kernels = {ran(0, 0, 10, 20), ran(1, 10, 502, 600), ran(0, 30, 400, 500)};
  find(kernels);
  EXPECT_EQ(kernels[1].waits_for, kNoKernel);
}

TEST(StreamWaits, ShortDelaysCountOnlyWhereAWaitWasAskedFor) {
  std::vector<RanKernel> kernels = {ran(0, 0, 10, 100), ran(1, 40, 101, 110)};
  find(kernels);
  EXPECT_EQ(kernels[1].waits_for, kNoKernel);
  kernels[1].is_behind_wait = true;
  find(kernels);
  EXPECT_EQ(kernels[1].waits_for, 0U);
}

TEST(StreamWaits, AGraphsUnseenWorkStaysAndOthersWaitForIt) {
  std::vector<RanKernel> kernels = {ran(0, 0, 10, 20), ran(0, 30, 2040, 2100),
                                    ran(1, 50, 2041, 2050), ran(1, 60, 2051, 2060)};
  kernels[1].is_alone = true;
  find(kernels);
  EXPECT_EQ(kernels[1].unseen_ns, 2010 * kUs);
  EXPECT_EQ(kernels[2].waits_for, 1U);
  EXPECT_TRUE(kernels[2].waits_for_begin);
}

TEST(StreamWaits, WorkFromBeforeTheRecording) {
  std::vector<RanKernel> kernels = {ran(0, 5, 4000, 4020), ran(0, 30, 4021, 4100)};
  find(kernels);
  EXPECT_EQ(kernels[0].unseen_ns, 3995 * kUs);
  kernels[0].is_behind_all = true;
  kernels[0].unseen_ns = 0;
  find(kernels);
  EXPECT_EQ(kernels[0].unseen_ns, 0);
}

// A device of three streams that does what it is told, and a recording of it that does not say
// which stream waits for which. Stream 7 computes, 20 is given what 7 made, 7 takes it back.
struct Made {
  formats::Trace trace;
  int64_t end_us = 0;
};

Made two_streams(double scale, uint32_t seed) {
  std::mt19937 random(seed);
  TinyTrace tiny;
  int64_t host = 100;
  int64_t free[2] = {0, 0};
  int64_t correlation = 1'000'000;
  const auto put = [&](size_t stream, int64_t length, int64_t after) {
    const auto scaled = static_cast<int64_t>(static_cast<double>(length) * scale);
    const int64_t start = std::max({host + 6, free[stream] + 1, after + 1});
    tiny.add(Kind::call, "cudaLaunchKernel", host, host + 3, ++correlation);
    tiny.add(Kind::kernel, stream == 0 ? "sgemm" : "ncclDevKernel_AllReduce", start, start + scaled,
             correlation, stream == 0 ? "7" : "20");
    free[stream] = start + scaled;
    host += 12;
  };
  const auto wait = [&] {
    tiny.add(Kind::call, "cudaStreamWaitEvent", host, host + 2, ++correlation);
    host += 3;
  };
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k < 3; ++k) put(0, 200 + static_cast<int64_t>(random() % 200), 0);
    wait();
    put(1, 500 + static_cast<int64_t>(random() % 400), free[0]);
    put(0, 150 + static_cast<int64_t>(random() % 100), 0);
    wait();
    put(0, 100, free[1]);
  }
  Made made;
  made.end_us = std::max(free[0], free[1]);
  tiny.step(1, 90, host + 5);
  made.trace = tiny.build();
  return made;
}

std::optional<Recording> record_of(const formats::Trace& trace) {
  static const OperatorRules kRules = *OperatorRules::load("");
  const Links links = link(trace);
  Classifier classifier(kRules, trace.names);
  return record(trace, links, work_of(trace, links, classifier), kRules);
}

TEST(StreamWaits, ForetellsAMadeChangeOfARunWhoseWaitsNoOneRecorded) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const Made slow = two_streams(1.0, seed);
    const Made fast = two_streams(0.5, seed);
    const auto recording = record_of(slow.trace);
    ASSERT_TRUE(recording);
    EXPECT_NEAR(replay_error(*recording).error_pct, 0, 0.5);
    timing::ReplayChange change;
    change.group_factors.assign(32, 0.5);
    const double foretold = timing::simulate(recording->program, change).total_ns;
    const double made = static_cast<double>(fast.end_us - 90) * 1000;
    EXPECT_NEAR(foretold / made, 1, 0.02) << seed;
    EXPECT_LT(foretold, recording->measured_ns);
  }
}

TEST(StreamWaits, FasterIsNeverSlower) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto recording = record_of(two_streams(1.0 + seed * 0.1, seed).trace);
    ASSERT_TRUE(recording);
    double last = timing::simulate(recording->program).total_ns;
    for (const double factor : {0.9, 0.6, 0.3, 0.0}) {
      timing::ReplayChange change;
      change.group_factors.assign(32, 1.0);
      change.group_factors[seed % 3] = factor;
      const double total = timing::simulate(recording->program, change).total_ns;
      EXPECT_LE(total, last + 1e-6) << seed;
      last = total;
    }
  }
}

}  // namespace
}  // namespace headroom::ops
