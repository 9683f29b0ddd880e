#include "ops/accounts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/ops.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using Kind = formats::TraceEventKind;

double ms(const Accounting& accounting, std::string_view name) {
  for (const GroupShare& group : accounting.groups) {
    if (group.name == name) return group.ms;
  }
  ADD_FAILURE() << "no group " << name;
  return 0;
}

OpsAnswer ask(const formats::Trace& trace) {
  Result<OpsAnswer> answered = answer(trace, *OperatorRules::load(""));
  EXPECT_TRUE(answered) << answered.error().to_string();
  return *answered;
}

// Times in microseconds; a step from 0 to 100.
//   host    aten::linear 0-20 > aten::addmm 2-18   aten::gelu 20-30   aten::add 80-90
//   stream 7  gemm 10-40   gelu 40-50   add 85-95
TinyTrace three_kernels() {
  TinyTrace tiny;
  tiny.step(1, 0, 100)
      .add(Kind::host_operator, "aten::linear", 0, 20)
      .launched("aten::addmm", 2, 18, "sgemm", 10, 40)
      .launched("aten::gelu", 20, 30, "GeluCUDAKernelImpl", 40, 50)
      .launched("aten::add", 80, 90, "CUDAFunctor_add elementwise", 85, 95);
  return tiny;
}

TEST(Accounts, KernelTime) {
  const OpsAnswer answer = ask(three_kernels().build());
  EXPECT_DOUBLE_EQ(answer.kernel_time.total_ms, 0.050);
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "gemm"), 0.030);
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "activation"), 0.010);
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "elementwise"), 0.010);
  EXPECT_EQ(answer.coverage.unlinked_pct_of_kernel_time, 0);
  EXPECT_EQ(answer.coverage.unclassified_pct_of_kernel_time, 0);
  EXPECT_DOUBLE_EQ(*answer.coverage.names_agree_pct_of_kernel_time, 100);
}

TEST(Accounts, WallTimeTellsIdleApart) {
  const OpsAnswer answer = ask(three_kernels().build());
  EXPECT_DOUBLE_EQ(answer.wall_time.total_ms, 0.100);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "gemm"), 0.030);
  // 0-10, 50-85 and 95-100.
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "idle"), 0.050);
  // Calls end at 5, 23 and 83: idle to 5 and from 50 to 83 is the host's, and so is the end.
  EXPECT_DOUBLE_EQ(answer.idle.host_ms, 0.005 + 0.033 + 0.005);
  EXPECT_DOUBLE_EQ(answer.idle.launch_ms, 0.005 + 0.002);
  EXPECT_EQ(answer.bound, Bound::host);
}

bool has_note(const OpsAnswer& answer, std::string_view words) {
  return std::ranges::any_of(
      answer.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

// A step from 0 to 100 whose kernel runs to 160: all of it is kernel time, 60 us are no wall time.
TEST(Accounts, WhatGoesOnBehindTheStepsIsTold) {
  const OpsAnswer answer =
      ask(TinyTrace().step(1, 0, 100).launched("aten::mm", 10, 20, "sgemm", 50, 160).build());
  EXPECT_DOUBLE_EQ(answer.kernel_time.total_ms, 0.110);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "gemm"), 0.050);
  EXPECT_DOUBLE_EQ(answer.overrun_ms, 0.060);
  EXPECT_TRUE(has_note(answer, "went on for 0.06 ms behind the steps"));
  EXPECT_FALSE(has_note(ask(three_kernels().build()), "behind the steps"));
}

// No kernel begins before the call that launched it: where many do, two clocks are apart.
TEST(Accounts, ClocksThatDifferAreTold) {
  const OpsAnswer answer = ask(TinyTrace()
                                   .step(1, 0, 100)
                                   .launched("aten::mm", 20, 30, "sgemm", 10, 40)
                                   .launched("aten::mm", 50, 60, "sgemm", 70, 80)
                                   .build());
  EXPECT_TRUE(has_note(answer, "1 of 2 kernels begin before the calls that launch them"));
  EXPECT_FALSE(has_note(ask(three_kernels().build()), "clocks"));
}

// Without calls in the trace nobody knows what the end of it waits for.
TEST(Accounts, IdleAtTheEndIsTheHostsWhereThereAreCalls) {
  const OpsAnswer answer = ask(TinyTrace()
                                   .add(Kind::annotation, "train", 0, 100)
                                   .add(Kind::kernel, "sgemm", 10, 40, 0, "7")
                                   .build());
  EXPECT_DOUBLE_EQ(answer.idle.unknown_ms, 0.070);
  EXPECT_DOUBLE_EQ(answer.idle.host_ms, 0);
}

TEST(Accounts, ThePapersFormulaAddsHostAndDevice) {
  // By hand: linear 20 + its gemm 30, gelu 10 + 10, add 10 + 10; addmm is not at the top.
  const OpsAnswer answer = ask(three_kernels().build());
  EXPECT_DOUBLE_EQ(answer.nongemm_bench.total_ms, 0.090);
  EXPECT_DOUBLE_EQ(ms(answer.nongemm_bench, "gemm"), 0.050);
  EXPECT_DOUBLE_EQ(ms(answer.nongemm_bench, "activation"), 0.020);
  EXPECT_DOUBLE_EQ(ms(answer.nongemm_bench_paper, "GEMM"), 0.050);
  EXPECT_DOUBLE_EQ(ms(answer.nongemm_bench_paper, "arithmetic"), 0.020);
  EXPECT_DOUBLE_EQ(ms(answer.nongemm_bench_paper, "missed"), 0);
}

TEST(Accounts, KernelsAtOnceShareTheMoment) {
  const OpsAnswer answer = ask(TinyTrace()
                                   .step(1, 0, 100)
                                   .launched("aten::mm", 0, 5, "sgemm", 10, 50)
                                   .launched("aten::gelu", 5, 10, "gelu", 30, 70, "9")
                                   .build());
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "gemm"), 0.030);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "activation"), 0.030);
  EXPECT_DOUBLE_EQ(answer.kernel_time.total_ms, 0.080);
}

TEST(Accounts, CommunicationCountsWhereNothingHidesIt) {
  const OpsAnswer answer =
      ask(TinyTrace()
              .step(1, 0, 100)
              .launched("aten::mm", 0, 5, "sgemm", 10, 50)
              .launched("c10d::allreduce_", 5, 10, "ncclDevKernel", 20, 90, "9")
              .build());
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "gemm"), 0.040);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "communication"), 0.040);
  EXPECT_DOUBLE_EQ(answer.communication_hidden_ms, 0.030);
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "communication"), 0.070);
}

TEST(Accounts, EarlierWorkIsBacklog) {
  const OpsAnswer answer = ask(TinyTrace()
                                   .launched("aten::mm", 0, 5, "sgemm", 5, 130)
                                   .step(1, 100, 200)
                                   .launched("aten::gelu", 110, 120, "gelu", 130, 220)
                                   .step(2, 200, 300)
                                   .launched("aten::add", 210, 220, "add elementwise", 220, 230)
                                   .build());
  EXPECT_DOUBLE_EQ(answer.backlog_ms, 0.030);
  EXPECT_DOUBLE_EQ(answer.kernel_time.total_ms, 0.100);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "gemm"), 0.030);
  ASSERT_EQ(answer.steps.size(), 2U);
  EXPECT_DOUBLE_EQ(answer.steps[0].backlog_ms, 0.030);
  EXPECT_DOUBLE_EQ(answer.steps[0].kernel_ms, 0.090);
  EXPECT_DOUBLE_EQ(answer.steps[1].backlog_ms, 0.020);
}

TEST(Accounts, KernelsOfAGraphAreSortedByNameAndCountAsUnlinked) {
  TinyTrace tiny;
  tiny.step(1, 0, 100)
      .add(Kind::host_operator, "aten::mm", 0, 10)
      .add(Kind::call, "cudaGraphLaunch", 1, 9, 500)
      .add(Kind::kernel, "sgemm", 10, 30, 500, "7")
      .add(Kind::kernel, "ncclDevKernel", 30, 40, 500, "7")
      .add(Kind::kernel, "mystery", 40, 50, 500, "7");
  const OpsAnswer answer = ask(tiny.build());
  EXPECT_DOUBLE_EQ(answer.coverage.unlinked_pct_of_kernel_time, 100);
  EXPECT_DOUBLE_EQ(answer.coverage.in_graphs_pct_of_kernel_time, 100);
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "gemm"), 0.020);
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "communication"), 0.010);
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "unclassified"), 0.010);
}

TEST(Accounts, WithoutADeviceOperatorsAreTheWork) {
  const OpsAnswer answer = ask(TinyTrace()
                                   .step(1, 0, 100)
                                   .add(Kind::host_operator, "aten::linear", 10, 60)
                                   .add(Kind::host_operator, "aten::addmm", 15, 55)
                                   .add(Kind::host_operator, "aten::gelu", 60, 80)
                                   .build());
  EXPECT_FALSE(answer.trace.has_device);
  EXPECT_EQ(answer.trace.device, "CPU");
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "gemm"), 0.050);
  EXPECT_DOUBLE_EQ(ms(answer.kernel_time, "activation"), 0.020);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "idle"), 0.030);
  EXPECT_FALSE(answer.coverage.names_agree_pct_of_kernel_time);
}

// A client that thinks between its runs.
TEST(Accounts, WithoutADeviceTimeBetweenStepsIsNoneOfTheirs) {
  const OpsAnswer answer = ask(TinyTrace()
                                   .step(1, 0, 100)
                                   .add(Kind::host_operator, "aten::addmm", 20, 100)
                                   .add(Kind::host_operator, "aten::gelu", 500, 600)
                                   .step(2, 1100, 1200)
                                   .add(Kind::host_operator, "aten::addmm", 1120, 1200)
                                   .build());
  EXPECT_DOUBLE_EQ(answer.wall_time.total_ms, 0.200);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "idle"), 0.040);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "gemm"), 0.160);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "activation"), 0);
}

// As a cut file is, in which kernels come last: no run of a CPU.
TEST(Accounts, CallsWithoutAKernelAreNoRunOfACpu) {
  const OpsAnswer answer = ask(TinyTrace()
                                   .step(1, 0, 100)
                                   .add(Kind::host_operator, "aten::addmm", 10, 60)
                                   .add(Kind::call, "cudaLaunchKernel", 20, 25, 7)
                                   .build());
  EXPECT_TRUE(answer.trace.lacks_kernels);
  EXPECT_EQ(answer.trace.device, "a device");
  EXPECT_EQ(answer.bound, Bound::not_recorded);
  EXPECT_TRUE(answer.horizon.empty());
}

// Cut so early that not even its calls are there: it names a device at its beginning.
TEST(Accounts, ACutFileThatNamesADeviceIsNoRunOfACpu) {
  formats::Trace trace =
      TinyTrace().step(1, 0, 100).add(Kind::host_operator, "aten::addmm", 10, 60).build();
  trace.devices.push_back({.name = "NVIDIA A100"});
  EXPECT_FALSE(ask(trace).trace.lacks_kernels);
  trace.is_cut = true;
  const OpsAnswer answer = ask(trace);
  EXPECT_EQ(answer.bound, Bound::not_recorded);
  EXPECT_EQ(answer.trace.device, "NVIDIA A100");
}

TEST(Accounts, ACutFileThatGotToNoDeviceMayBeOfOne) {
  formats::Trace trace =
      TinyTrace().step(1, 0, 100).add(Kind::host_operator, "aten::addmm", 10, 60).build();
  trace.is_cut = trace.lacks_devices = true;
  const OpsAnswer answer = ask(trace);
  EXPECT_EQ(answer.bound, Bound::not_recorded);
  EXPECT_TRUE(answer.trace.lacks_devices);
  EXPECT_EQ(answer.trace.device, "device not known");
}

// Where a kernel was lost the device looks idle.
TEST(Accounts, ACutFileThatLostKernelsIsNotJudged) {
  TinyTrace tiny;
  tiny.step(1, 0, 1000);
  for (int64_t i = 0; i < 9; ++i) {
    tiny.launched("aten::mm", 100 * i, 100 * i + 10, "sgemm", 100 * i + 10, 100 * i + 90);
  }
  tiny.add(Kind::host_operator, "aten::mm", 900, 910);
  tiny.add(Kind::call, "cudaLaunchKernel", 901, 905, 77);
  formats::Trace trace = tiny.build();
  EXPECT_NE(ask(trace).bound, Bound::not_recorded);
  EXPECT_FALSE(ask(trace).horizon.empty());
  trace.is_cut = true;
  const OpsAnswer answer = ask(trace);
  EXPECT_EQ(answer.trace.launches, 10);
  EXPECT_EQ(answer.trace.lost_launches, 1);
  EXPECT_EQ(answer.bound, Bound::not_recorded);
  EXPECT_TRUE(answer.horizon.empty());
}

// A backend's collective runs on a thread of its own: what no operator hides counts.
TEST(Accounts, ACollectiveOnACpuIsCommunication) {
  const OpsAnswer answer = ask(TinyTrace()
                                   .step(1, 0, 100)
                                   .add(Kind::host_operator, "aten::addmm", 10, 30)
                                   .add(Kind::annotation, "gloo:all_reduce", 20, 80, 0, "2")
                                   .add(Kind::annotation, "somebody's range", 80, 95, 0, "2")
                                   .build());
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "gemm"), 0.020);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "communication"), 0.050);
  EXPECT_DOUBLE_EQ(ms(answer.wall_time, "idle"), 0.030);
  EXPECT_EQ(answer.bound, Bound::communication);
}

TEST(Accounts, AKernelThatRunsOverManyStepsIsTheirBacklog) {
  TinyTrace tiny;
  tiny.launched("aten::mm", 0, 5, "sgemm", 5, 10);
  for (int64_t i = 0; i < 5; ++i) tiny.step(i, 10 + 100 * i, 110 + 100 * i);
  tiny.launched("aten::mm", 20, 30, "sgemm", 30, 350);
  const OpsAnswer answer = ask(tiny.build());
  const double expected[] = {0, 0.100, 0.100, 0.040, 0};
  ASSERT_EQ(answer.steps.size(), 5U);
  for (size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(answer.steps[i].backlog_ms, expected[i]) << i;
}

TEST(Accounts, NothingToCountIsAnError) {
  const OperatorRules rules = *OperatorRules::load("");
  EXPECT_FALSE(answer(formats::Trace(), rules));
  EXPECT_FALSE(answer(TinyTrace().step(1, 0, 10).build(), rules));
}

// What no rule sorts is not called non-GEMM.
TEST(Bound, IsNotKnownWhereNothingIsSorted) {
  TinyTrace tiny;
  tiny.step(1, 0, 100).launched("my::scan", 1, 5, "scan_in_chunks", 6, 99);
  const OpsAnswer answer = ask(tiny.build());
  EXPECT_EQ(answer.bound, Bound::unclassified);
  EXPECT_NEAR(answer.bound_pct, 93, 1e-9);
}

}  // namespace
}  // namespace headroom::ops
