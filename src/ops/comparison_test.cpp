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

// What lies between the steps of a device is in the rows; so it is in the step.
TEST(Comparison, TheStepIsWhatItsRowsSumTo) {
  TinyTrace tiny;
  for (int64_t at : {0, 300, 600}) {
    tiny.step(at / 300, at, at + 250)
        .launched("aten::mm", at + 5, at + 15, "sgemm", at + 20, at + 90);
  }
  const RecordedRun run = *run_of(tiny.build(), rules());
  const OpsComparison comparison = compared(run, run);
  double rows = 0;
  for (const OperatorChange& change : comparison.changes) rows += change.before_ms;
  EXPECT_NEAR(rows, 0.850 / 3, 1e-9);
  EXPECT_NEAR(comparison.before.step_ms, rows, 1e-9);
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

// Steps of 150, 151, 152 and of 156, 157, 158 us: 4 % apart, each mean known to 1 us / sqrt(3);
// 3.99 degrees of freedom, of which 3 count.
TEST(Comparison, AgainstTheSpreadOfSteps) {
  const RecordedRun before = run_with(3, 100, 2);
  const RecordedRun after = run_with(3, 106, 2);
  const OpsComparison comparison = compared(before, after, 1.0);
  EXPECT_NEAR(comparison.slowdown_pct, 100.0 * 6 / 151, 1e-9);
  const double sigma = std::sqrt(1 / (3 * 151.0 * 151.0) + 1 / (3 * 157.0 * 157.0));
  ASSERT_TRUE(comparison.slowdown_low_pct);
  EXPECT_NEAR(*comparison.slowdown_low_pct, 100 * (157.0 / 151 * std::exp(-2.353 * sigma) - 1),
              1e-9);
  EXPECT_NEAR(*comparison.slowdown_high_pct, 100 * (157.0 / 151 * std::exp(2.353 * sigma) - 1),
              1e-9);
  EXPECT_EQ(comparison.verdict, Slowdown::beyond_limit);
  EXPECT_EQ(compared(before, after, 3.5).verdict, Slowdown::within_spread);
  EXPECT_EQ(compared(before, after, 5.0).verdict, Slowdown::within_limit);
  EXPECT_EQ(compared(before, after).verdict, Slowdown::not_asked);
  EXPECT_EQ(compared(after, before, 0.0).verdict, Slowdown::within_limit);
}

// Steps of the given times and nothing else in them.
RecordedRun run_of_steps(const std::vector<int64_t>& steps_us) {
  TinyTrace tiny;
  int64_t time = 0;
  int64_t number = 0;
  for (const int64_t step : steps_us) {
    tiny.launched("aten::mm", time, time + 3, "sgemm", time + 3, time + 4);
    tiny.step(++number, time, time + step);
    time += step;
  }
  return *run_of(tiny.build(), rules());
}

// Whatever the runs: exchanged they give the reciprocal, and no step takes less than no time.
TEST(Comparison, ExchangedRunsGiveTheReciprocal) {
  const std::vector<std::vector<int64_t>> runs{{100, 100, 100}, {100, 101, 99, 100}, {10, 500},
                                               {5, 5, 5, 2000}, {40, 90, 20},        {70}};
  const auto ratio = [](const std::optional<double>& pct) { return 1 + *pct / 100; };
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t j = 0; j < runs.size(); ++j) {
      SCOPED_TRACE(std::to_string(i) + " and " + std::to_string(j));
      const RecordedRun one = run_of_steps(runs[i]);
      const RecordedRun other = run_of_steps(runs[j]);
      const OpsComparison there = compared(one, other);
      const OpsComparison back = compared(other, one);
      EXPECT_NEAR(ratio(there.slowdown_pct) * ratio(back.slowdown_pct), 1, 1e-9);
      ASSERT_EQ(there.slowdown_low_pct.has_value(), back.slowdown_low_pct.has_value());
      if (!there.slowdown_low_pct) continue;
      EXPECT_NEAR(ratio(there.slowdown_low_pct) * ratio(back.slowdown_high_pct), 1, 1e-9);
      EXPECT_NEAR(ratio(there.slowdown_high_pct) * ratio(back.slowdown_low_pct), 1, 1e-9);
      EXPECT_GT(*there.slowdown_low_pct, -100);
      EXPECT_LE(*there.slowdown_low_pct, there.slowdown_pct + 1e-9);
      EXPECT_GE(*there.slowdown_high_pct, there.slowdown_pct - 1e-9);
    }
  }
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

// A fill before a product is not what the product's time is of.
TEST(Comparison, TheGroupIsTheOneWithMostTime) {
  const auto run = [](int64_t gemm_us) {
    TinyTrace tiny;
    tiny.step(1, 0, 1000)
        .launched("aten::addmm", 20, 40, "Memset (Device)", 90, 95)
        .add(Kind::call, "cudaLaunchKernel", 30, 32, 900)
        .add(Kind::kernel, "sgemm", 100, 100 + gemm_us, 900, "7");
    return *run_of(tiny.build(), rules());
  };
  EXPECT_EQ(find(compared(run(100), run(150)), "aten::addmm").group, "gemm");
  // Of what the second has; of the first where the second has nothing.
  EXPECT_EQ(find(compared(run(100), run(2)), "aten::addmm").group, "memory");
  EXPECT_EQ(find(compared(run(100), run_of_steps({500})), "aten::addmm").group, "gemm");
}

// A kernel of `backlog_us` that was launched before the step still runs in it; the step calls the
// same operator `calls` times.
RecordedRun run_with_backlog(int64_t backlog_us, int calls) {
  TinyTrace tiny;
  tiny.step(1, 1000, 2000);
  if (backlog_us > 0) tiny.launched("aten::add", 10, 20, "add elementwise", 30, 1000 + backlog_us);
  for (int i = 0; i < calls; ++i) {
    const int64_t at = 1500 + 20 * i;
    tiny.launched("aten::add", at, at + 5, "add elementwise", at + 5, at + 15);
  }
  tiny.launched("aten::mm", 1900, 1910, "sgemm", 1910, 1950);
  return *run_of(tiny.build(), rules());
}

TEST(Comparison, EarlierWorkInAStepIsNoCallOfIt) {
  const auto change = [](const RecordedRun& before, const RecordedRun& after) {
    return find(compared(before, after), "aten::add");
  };
  const OperatorChange only_backlog = change(run_with_backlog(0, 0), run_with_backlog(200, 0));
  EXPECT_EQ(only_backlog.reason, ChangeReason::backlog);
  EXPECT_EQ(only_backlog.group, "elementwise");
  EXPECT_EQ(only_backlog.after_count, 0);
  EXPECT_NEAR(only_backlog.after_backlog_ms, 0.2, 1e-9);
  EXPECT_EQ(change(run_with_backlog(200, 0), run_with_backlog(0, 0)).reason, ChangeReason::backlog);
  EXPECT_EQ(change(run_with_backlog(200, 0), run_with_backlog(200, 0)).reason, ChangeReason::none);
  EXPECT_EQ(change(run_with_backlog(200, 2), run_with_backlog(300, 3)).reason,
            ChangeReason::backlog);
  // Most of the change is of calls.
  EXPECT_EQ(change(run_with_backlog(200, 2), run_with_backlog(210, 9)).reason,
            ChangeReason::more_calls);
  EXPECT_EQ(change(run_with_backlog(200, 0), run_with_backlog(210, 5)).reason, ChangeReason::added);
  EXPECT_EQ(change(run_with_backlog(200, 5), run_with_backlog(200, 0)).reason,
            ChangeReason::removed);
}

// A hundredth more calls are what changed, where each takes as long.
TEST(Comparison, AFewMoreCallsAreMoreCalls) {
  EXPECT_EQ(find(compared(run_with(3, 100, 100), run_with(3, 100, 101)), "aten::add").reason,
            ChangeReason::more_calls);
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
