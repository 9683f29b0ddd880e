#include "ops/horizon.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

// The host waits at the end; the device has products of 60 us and sums of 30.
TEST(FasterGroups, AreMadeTogether) {
  const auto rules = OperatorRules::load("");
  TinyTrace tiny;
  tiny.step(1, 0, 950);
  int64_t at = 20;
  for (int i = 0; i < 10; ++i) {
    tiny.launched("aten::mm", 1 + 8 * i, 4 + 8 * i, "sgemm", at, at + 60);
    tiny.launched("aten::add", 5 + 8 * i, 8 + 8 * i, "add elementwise", at + 61, at + 91);
    at += 92;
  }
  tiny.add(formats::TraceEventKind::call, "cudaDeviceSynchronize", 85, 945);
  const auto run = run_of(tiny.build(), *rules);
  ASSERT_TRUE(run);
  const auto faster = faster_groups("gemm=3,elementwise=2", *rules);
  const OpsAnswer made = answer(*run, *rules, {}, *faster);
  const HorizonChange* asked = nullptr;
  for (const HorizonChange& change : made.horizon) {
    if (change.change == "faster:gemm=3,elementwise=2") asked = &change;
  }
  ASSERT_NE(asked, nullptr);
  EXPECT_DOUBLE_EQ(asked->amdahl_speedup, 90.0 / 35);
  EXPECT_GT(asked->speedup, 1.8);
  EXPECT_LT(asked->speedup, 90.0 / 35);

  // A group of its own counts, wherever non_gemm stands.
  const auto both = faster_groups("elementwise=2,non_gemm=3", *rules);
  for (const HorizonChange& change : answer(*run, *rules, {}, *both).horizon) {
    if (!change.change.starts_with("faster:")) continue;
    EXPECT_DOUBLE_EQ(change.amdahl_speedup, 90.0 / 75);
  }
}

}  // namespace
}  // namespace headroom::ops
