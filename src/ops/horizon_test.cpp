#include "ops/horizon.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

TEST(FasterGroups, OfWords) {
  const auto rules = OperatorRules::load("");
  const auto groups = faster_groups("gemm=4,non_gemm=1.5", *rules);
  ASSERT_TRUE(groups) << groups.error().to_string();
  ASSERT_EQ(groups->size(), 2U);
  EXPECT_EQ((*groups)[0].title, "GEMM");
  EXPECT_EQ((*groups)[0].factor, 4);
  EXPECT_EQ((*groups)[1].factor, 1.5);
  EXPECT_TRUE(faster_groups("", *rules)->empty());
  for (const char* const wrong : {"gemm", "gemm=", "gemm=0", "gemm=-1", "gemm=nan", "gemm=inf",
                                  "gemm=2x", "gem=2", "=2", ",", "gemm=2,,", "gemm=1e9"}) {
    EXPECT_FALSE(faster_groups(wrong, *rules)) << wrong;
  }
}

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
}

}  // namespace
}  // namespace headroom::ops
