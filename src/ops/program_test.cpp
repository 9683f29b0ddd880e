#include "ops/program.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/ops.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using formats::Trace;
using formats::TraceEvent;
using Kind = formats::TraceEventKind;

// Two hundred operators, a wait every ten; each kernel begins as a device would begin it.
Trace eager_run(int64_t host_us, int64_t kernel_us, uint32_t seed) {
  std::mt19937 random(seed);
  TinyTrace tiny;
  int64_t time = 100;
  int64_t free = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t length = host_us + static_cast<int64_t>(random() % 5);
    const int64_t kernel = kernel_us + static_cast<int64_t>(random() % 7);
    const int64_t start = std::max(time + 1 + 6, free + 1);
    tiny.launched(i % 3 == 0 ? "aten::mm" : "aten::add", time, time + length,
                  i % 3 == 0 ? "sgemm" : "add elementwise", start, start + kernel);
    free = start + kernel;
    time += length + 2;
    if (i % 10 == 9) {
      const int64_t end = std::max(time + 3, free + 5);
      tiny.add(Kind::call, "cudaStreamSynchronize", time, end, 100'000 + i);
      time = end + 1;
    }
  }
  tiny.step(1, 90, time + 5);
  return tiny.build();
}

std::optional<Recording> record_of(const Trace& trace) {
  static const OperatorRules kRules = *OperatorRules::load("");
  const Links links = link(trace);
  Classifier classifier(kRules, trace.names);
  return record(trace, links, work_of(trace, links, classifier), kRules);
}

double error_pct(const Recording& recording) {
  const double replayed = timing::simulate(recording.program).total_ns;
  return 100 * (replayed - recording.measured_ns) / recording.measured_ns;
}

TEST(Program, TheUnchangedRunIsReplayed) {
  for (const auto& [host, kernel] : {std::pair<int64_t, int64_t>{40, 10}, {5, 60}, {20, 20}}) {
    const auto recording = record_of(eager_run(host, kernel, 7));
    ASSERT_TRUE(recording);
    EXPECT_NEAR(error_pct(*recording), 0, 1.0) << host << " " << kernel;
  }
}

// The same trace after the device's begins and the ends of calls that wait are thrown about: what
// goes into the replay, but for the four latencies, is the same to the last nanosecond.
TEST(Program, HoldsNoTimeOfTheDevice) {
  const Trace trace = eager_run(10, 30, 3);
  Trace thrown = trace;
  std::mt19937 random(5);
  for (TraceEvent& event : thrown.events) {
    if (formats::is_device(event.kind)) event.start_ns += static_cast<int64_t>(random() % 1000);
  }
  std::stable_sort(thrown.events.begin(), thrown.events.end(), [](const auto& a, const auto& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
  });
  const auto one = record_of(trace);
  const auto other = record_of(thrown);
  ASSERT_TRUE(one);
  ASSERT_TRUE(other);
  ASSERT_EQ(one->program.calls.size(), other->program.calls.size());
  for (size_t i = 0; i < one->program.calls.size(); ++i) {
    const timing::ReplayCall& a = one->program.calls[i];
    const timing::ReplayCall& b = other->program.calls[i];
    EXPECT_EQ(a.gap_ns, b.gap_ns);
    EXPECT_EQ(a.cost_ns, b.cost_ns);
    EXPECT_EQ(a.after, b.after);
    EXPECT_EQ(a.waits_for, b.waits_for);
    EXPECT_TRUE(a.kind != timing::CallKind::wait || a.cost_ns == 0) << "a wait has no duration";
  }
  ASSERT_EQ(one->program.kernels.size(), other->program.kernels.size());
  for (size_t i = 0; i < one->program.kernels.size(); ++i) {
    EXPECT_EQ(one->program.kernels[i].duration_ns, other->program.kernels[i].duration_ns);
    EXPECT_EQ(one->program.kernels[i].waits_for, other->program.kernels[i].waits_for);
    EXPECT_EQ(one->program.kernels[i].unseen_ns, 0);
  }
}

// A change that is really made: the run with kernels of another length, from the first run.
TEST(Program, ForetellsARunThatWasReallyMade) {
  const auto slow = record_of(eager_run(10, 60, 11));
  const auto fast = record_of(eager_run(10, 30, 11));
  ASSERT_TRUE(slow);
  ASSERT_TRUE(fast);
  timing::ReplayChange change;
  change.group_factors.assign(32, 33.0 / 63.0);  // 30 and 60, each with 3 on average
  const double foretold = timing::simulate(slow->program, change).total_ns;
  EXPECT_NEAR(foretold / fast->measured_ns, 1, 0.03);
}

TEST(Program, ABackwardThreadFollowsTheOneThatWokeIt) {
  TinyTrace tiny;
  tiny.step(1, 0, 1000)
      .launched("aten::mm", 10, 100, "sgemm", 20, 30)
      .add(Kind::host_operator, "MmBackward0", 150, 260, 0, "2")
      .add(Kind::call, "cudaLaunchKernel", 200, 203, 900, "2")
      .add(Kind::kernel, "sgemm", 210, 220, 900, "7")
      .launched("aten::add", 300, 320, "add elementwise", 310, 320);
  const auto recording = record_of(tiny.build());
  ASSERT_TRUE(recording);
  ASSERT_EQ(recording->program.calls.size(), 3U);
  EXPECT_EQ(recording->program.calls[1].after, 0U);
  EXPECT_EQ(recording->program.calls[1].gap_ns, (200 - 13) * 1000);
  EXPECT_EQ(recording->program.calls[2].after, 1U);
}

TEST(Program, RecordedWaitsBetweenStreams) {
  TinyTrace tiny;
  tiny.step(1, 0, 1000)
      .launched("aten::mm", 10, 30, "sgemm", 20, 400)
      .add(Kind::call, "cudaEventRecord", 40, 42, 801)
      .add(Kind::call, "cudaStreamWaitEvent", 50, 52, 802)
      .launched("aten::mm", 60, 80, "sgemm", 401, 500, "20");
  Trace trace = tiny.build();
  trace.waits.push_back({802, 801, 20, 7, 0});
  const auto recording = record_of(trace);
  ASSERT_TRUE(recording);
  EXPECT_EQ(recording->program.kernels[1].waits_for, 0U);
}

// A first kernel that comes late was held up by what nobody recorded, unless the host had just
// waited for all that was on the device; the time before its launch is the host's.
TEST(Program, NothingIsLeftOnADeviceThatWasWaitedFor) {
  const auto held_ns = [](const char* wait) {
    TinyTrace tiny;
    tiny.step(1, 0, 2000);
    tiny.add(Kind::call, wait, 10, 20, 100'000);
    tiny.launched("aten::mm", 100, 120, "sgemm", 700, 900);
    const auto recording = record_of(tiny.build());
    return recording ? recording->program.kernels[0].unseen_ns : -1;
  };
  EXPECT_EQ(held_ns("cudaDeviceSynchronize"), 0);
  EXPECT_EQ(held_ns("cudaEventSynchronize"), 599'000);
}

TEST(Program, NothingToReplay) {
  EXPECT_FALSE(record_of(TinyTrace().add(Kind::host_operator, "aten::mm", 0, 10).build()));
  EXPECT_FALSE(record_of(TinyTrace().add(Kind::kernel, "sgemm", 0, 10, 5, "7").build()));
}

TEST(Horizon, SaysWhereAmdahlIsWrong) {
  const OperatorRules rules = *OperatorRules::load("");
  const auto find = [](const OpsAnswer& answer, const std::string& name) {
    for (const HorizonChange& change : answer.horizon) {
      if (change.change == name) return change;
    }
    ADD_FAILURE() << name;
    return HorizonChange();
  };
  const Result<OpsAnswer> host_bound = answer(eager_run(60, 5, 1), rules);
  ASSERT_TRUE(host_bound);
  EXPECT_NEAR(find(*host_bound, "gemm_instant").speedup, 1.0, 0.03);
  EXPECT_GT(find(*host_bound, "gemm_instant").amdahl_speedup, 1.4);
  EXPECT_GT(find(*host_bound, "host_2x").speedup, 1.7);
  EXPECT_GT(find(*host_bound, "cuda_graph").speedup, 4);
  const Result<OpsAnswer> device_bound = answer(eager_run(5, 100, 1), rules);
  ASSERT_TRUE(device_bound);
  const HorizonChange gemm = find(*device_bound, "gemm_2x");
  EXPECT_NEAR(gemm.speedup, gemm.amdahl_speedup, 0.05);
  EXPECT_LE(gemm.speedup_low, gemm.speedup);
  EXPECT_GE(gemm.speedup_high, gemm.speedup);
}

}  // namespace
}  // namespace headroom::ops
