#include "ops/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using Kind = formats::TraceEventKind;

const OperatorRules& rules() {
  static const OperatorRules kRules = *OperatorRules::load("");
  return kRules;
}

// `steps` steps, each with a matmul of `gemm_us` and `adds` additions; step n takes n us longer.
RecordedRun run_with(int steps, int64_t gemm_us, int adds, const char* gemm = "sgemm",
                     const char* shapes = "[[4,8],[8,4]] float") {
  TinyTrace tiny;
  int64_t time = 0;
  for (int step = 0; step < steps; ++step) {
    const int64_t begin = time;
    tiny.launched("aten::mm", time + 5, time + 15, gemm, time + 20, time + 20 + gemm_us);
    time += 20 + gemm_us;
    for (int i = 0; i < adds; ++i) {
      tiny.launched("aten::add", time - 10, time - 4, "add elementwise", time, time + 10);
      time += 10;
    }
    time += 10 + step;
    tiny.step(step, begin, time);
  }
  formats::Trace trace = tiny.build();
  for (formats::TraceEvent& event : trace.events) {
    if (trace.name_of(event) == "aten::mm") event.detail = trace.names.intern(shapes);
  }
  return *run_of(std::move(trace), rules());
}

const OperatorChange& find(const OpsComparison& comparison, std::string_view name) {
  for (const OperatorChange& change : comparison.changes) {
    if (change.name == name) return change;
  }
  ADD_FAILURE() << name;
  return comparison.changes.front();
}

OpsComparison compared(const RecordedRun& before, const RecordedRun& after,
                       std::optional<double> most = std::nullopt) {
  return compare(before, after, rules(), most);
}

TEST(Comparison, WhatGotSlowerAndWhy) {
  const OpsComparison comparison = compared(run_with(3, 100, 2), run_with(3, 150, 2));
  EXPECT_EQ(comparison.changes.front().name, "aten::mm");
  EXPECT_EQ(comparison.changes.front().shapes, "[[4,8],[8,4]]");
  EXPECT_EQ(comparison.changes.front().reason, ChangeReason::each_slower);
  EXPECT_NEAR(comparison.changes.front().change_ms(), 0.05, 1e-9);
  EXPECT_EQ(find(comparison, "aten::add").reason, ChangeReason::none);
}

TEST(Comparison, Reasons) {
  const RecordedRun plain = run_with(3, 100, 2);
  EXPECT_EQ(find(compared(plain, run_with(3, 100, 5)), "aten::add").reason,
            ChangeReason::more_calls);
  EXPECT_EQ(find(compared(plain, run_with(3, 60, 2)), "aten::mm").reason,
            ChangeReason::each_faster);
  EXPECT_EQ(find(compared(plain, run_with(3, 60, 2, "hgemm")), "aten::mm").reason,
            ChangeReason::other_kernels);
  EXPECT_EQ(find(compared(plain, run_with(3, 100, 0)), "aten::add").reason, ChangeReason::removed);
  EXPECT_EQ(find(compared(run_with(3, 100, 0), plain), "aten::add").reason, ChangeReason::added);
  const OpsComparison shapes = compared(plain, run_with(3, 200, 2, "sgemm", "[[8,8],[8,8]] float"));
  EXPECT_EQ(find(shapes, "aten::mm").reason, ChangeReason::other_shapes);
  EXPECT_NEAR(find(shapes, "aten::mm").before_ms, 0.1, 1e-9);
  EXPECT_NEAR(find(shapes, "aten::mm").after_ms, 0.2, 1e-9);
}

TEST(Comparison, RowsSumToTheWallTimeOfAStep) {
  const RecordedRun before = run_with(4, 100, 2);
  const RecordedRun after = run_with(3, 130, 7, "hgemm", "[[2,2],[2,2]] float");
  const OpsComparison comparison = compared(before, after);
  double was = 0;
  double is = 0;
  for (const OperatorChange& change : comparison.changes) {
    was += change.before_ms;
    is += change.after_ms;
  }
  const auto wall = [](const RecordedRun& run) {
    return static_cast<double>(run.links.end_ns() - run.links.start_ns()) / 1e6 /
           static_cast<double>(run.links.steps.size());
  };
  EXPECT_NEAR(was, wall(before), 1e-9);
  EXPECT_NEAR(is, wall(after), 1e-9);
}

// Steps of 150, 151, 152 and of 156, 157, 158 us: 4 % apart, each mean known to 1 us / sqrt(3).
TEST(Comparison, AgainstTheSpreadOfSteps) {
  const RecordedRun before = run_with(3, 100, 2);
  const RecordedRun after = run_with(3, 106, 2);
  const OpsComparison comparison = compared(before, after, 1.0);
  EXPECT_NEAR(comparison.slowdown_pct, 100.0 * 6 / 151, 1e-9);
  const double margin = 100 * 2.132 * std::sqrt(2.0 / 3) / 151;  // 4 degrees of freedom
  ASSERT_TRUE(comparison.slowdown_low_pct);
  EXPECT_NEAR(*comparison.slowdown_low_pct, comparison.slowdown_pct - margin, 1e-9);
  EXPECT_EQ(comparison.verdict, Slowdown::beyond_limit);
  EXPECT_EQ(compared(before, after, 3.5).verdict, Slowdown::within_spread);
  EXPECT_EQ(compared(before, after, 5.0).verdict, Slowdown::within_limit);
  EXPECT_EQ(compared(before, after).verdict, Slowdown::not_asked);
  EXPECT_EQ(compared(after, before, 0.0).verdict, Slowdown::within_limit);
}

TEST(Comparison, OneStepEachIsJudgedAsItIs) {
  const OpsComparison comparison = compared(run_with(1, 100, 2), run_with(1, 110, 2), 5.0);
  EXPECT_FALSE(comparison.slowdown_low_pct);
  EXPECT_EQ(comparison.verdict, Slowdown::beyond_limit);
}

// A collective that begins between the two kernels of a product is no second call of the product.
TEST(Comparison, AnOperatorIsCountedOnceWhateverRunsBetweenItsKernels) {
  const auto run = [](bool has_collective) {
    TinyTrace tiny;
    tiny.step(1, 0, 1000)
        .launched("aten::mm", 20, 40, "sgemm splitK", 90, 200)
        .add(Kind::call, "cudaLaunchKernel", 30, 32, 900)
        .add(Kind::kernel, "splitKreduce_kernel", 200, 220, 900, "7");
    if (has_collective) {
      tiny.launched("c10d::allreduce_", 5, 15, "ncclDevKernel_AllReduce", 150, 300, "20");
    }
    return *run_of(tiny.build(), rules());
  };
  const OpsComparison comparison = compared(run(false), run(true));
  EXPECT_EQ(find(comparison, "aten::mm").before_count, 1);
  EXPECT_EQ(find(comparison, "aten::mm").after_count, 1);
}

TEST(Comparison, WhatIsNoLongerHidden) {
  TinyTrace hidden;
  hidden.step(1, 0, 1000)
      .launched("c10d::allreduce_", 5, 15, "ncclDevKernel_AllReduce", 100, 300, "20")
      .launched("aten::mm", 20, 30, "sgemm", 90, 400);
  TinyTrace exposed;
  exposed.step(1, 0, 1000)
      .launched("c10d::allreduce_", 5, 15, "ncclDevKernel_AllReduce", 500, 700, "20")
      .launched("aten::mm", 20, 30, "sgemm", 90, 400);
  const OpsComparison comparison =
      compared(*run_of(hidden.build(), rules()), *run_of(exposed.build(), rules()));
  EXPECT_EQ(find(comparison, "c10d::allreduce_").reason, ChangeReason::hidden_less);
  EXPECT_NEAR(find(comparison, "c10d::allreduce_").change_ms(), 0.2, 1e-9);
}

}  // namespace
}  // namespace headroom::ops
