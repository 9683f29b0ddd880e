#include "ops/bound.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace {

// A run of 100 ms whose replay is exact: so much of it idle, the rest in operators that are no
// GEMM.
OpsAnswer run_with_idle(double idle_pct) {
  OpsAnswer answer;
  answer.trace.has_device = true;
  answer.wall_time.total_ms = 100;
  answer.wall_time.groups = {{"idle", "Idle", idle_pct, idle_pct},
                             {"elementwise", "Elementwise", 100 - idle_pct, 100 - idle_pct}};
  answer.replay = ReplayError{.measured_ms = 100, .replayed_ms = 100};
  find_bound(answer);
  return answer;
}

HorizonChange change(const char* name, double speedup) {
  HorizonChange change;
  change.change = name;
  change.speedup = speedup;
  return change;
}

TEST(Bound, IsWhatTheReplaySaysSavesClearlyMost) {
  OpsAnswer answer = run_with_idle(30);
  answer.horizon = {change("host_2x", 1.5), change("non_gemm_2x", 1.1)};
  find_bound_by_replay(answer);
  EXPECT_EQ(answer.bound, Bound::host);
  EXPECT_DOUBLE_EQ(answer.bound_pct, 30);
}

TEST(Bound, IsMixedWhereTwoChangesSaveAlike) {
  OpsAnswer answer = run_with_idle(50);
  answer.horizon = {change("host_2x", 1.2), change("non_gemm_2x", 1.19)};
  find_bound_by_replay(answer);
  EXPECT_EQ(answer.bound, Bound::mixed);
}

// A trace cut out of a run: nearly all of it idle, and no change would save anything.
TEST(Bound, StaysWithTheTimeWhereNoChangeSavesAnything) {
  OpsAnswer answer = run_with_idle(99.8);
  const Bound by_time = answer.bound;
  answer.horizon = {change("non_gemm_2x", 1.001)};
  find_bound_by_replay(answer);
  EXPECT_EQ(answer.bound, by_time);
  EXPECT_DOUBLE_EQ(answer.bound_pct, 99.8);
}

// There no change is about what is outside of operators, however much that is.
TEST(Bound, OnACpuWhatIsOutsideOfOperatorsCounts) {
  OpsAnswer answer = run_with_idle(80);
  answer.trace.has_device = false;
  answer.horizon = {change("non_gemm_2x", 1.11)};
  find_bound_by_replay(answer);
  EXPECT_EQ(answer.bound, Bound::host);
  EXPECT_DOUBLE_EQ(answer.bound_pct, 80);
  answer = run_with_idle(10);
  answer.trace.has_device = false;
  answer.horizon = {change("non_gemm_2x", 1.82)};
  find_bound_by_replay(answer);
  EXPECT_EQ(answer.bound, Bound::non_gemm);
}

TEST(Bound, DoesNotListenToAReplayThatIsFarOff) {
  OpsAnswer answer = run_with_idle(80);
  const Bound by_time = answer.bound;
  answer.replay->error_pct = 9;
  answer.horizon = {change("non_gemm_2x", 2)};
  find_bound_by_replay(answer);
  EXPECT_EQ(answer.bound, by_time);
}

}  // namespace
}  // namespace headroom::ops
