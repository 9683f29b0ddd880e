#include "ops/counters.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace {

KernelRow kernel(const char* name, double ms, double pct) {
  KernelRow row;
  row.name = name;
  row.count = 2;
  row.kernel_ms = ms;
  row.pct = pct;
  return row;
}

TEST(Counters, AreMeansByKernel) {
  formats::NcuProfile profile;
  profile.metrics = {{"dram__bytes.sum", "byte"}, {"DRAM Throughput", "%"}};
  profile.launches = {{"add", {{0, 10.0}, {1, 50.0}}}, {"add", {{0, 30.0}}}, {"lost", {{0, 1.0}}}};
  const KernelCounters counters =
      counters_of(profile, {kernel("add", 3, 30), kernel("add", 1, 10), kernel("mm", 6, 60)});
  ASSERT_EQ(counters.rows.size(), 1U);
  const CounterRow& row = counters.rows[0];
  EXPECT_EQ(row.launches, 2);
  EXPECT_EQ(row.count, 4);
  EXPECT_DOUBLE_EQ(row.kernel_ms, 4);
  EXPECT_DOUBLE_EQ(counters.covered_pct, 40);
  EXPECT_EQ(counters.unmatched_launches, 1);
  ASSERT_EQ(row.values.size(), 2U);
  EXPECT_DOUBLE_EQ(row.values[0].mean, 20);
  EXPECT_DOUBLE_EQ(row.values[1].mean, 50);
}

TEST(Counters, AFunctionWithoutItsArgumentsIsFoundWhereItIsTheOnlyOne) {
  formats::NcuProfile profile;
  profile.metrics = {{"m", ""}};
  profile.launches = {{"gemm", {{0, 1.0}}}, {"add", {{0, 1.0}}}};
  const KernelCounters counters =
      counters_of(profile, {kernel("void lib::gemm<4, A<B>>(float*)", 2, 50),
                            kernel("void add<1>(int)", 1, 25), kernel("void add<2>(int)", 1, 25)});
  ASSERT_EQ(counters.rows.size(), 1U);
  EXPECT_EQ(counters.rows[0].kernel, "void lib::gemm<4, A<B>>(float*)");
  EXPECT_EQ(counters.unmatched_launches, 1);
}

// PyTorch has many of its kernels in namespaces without a name, and ncu may leave those out.
TEST(Counters, AFunctionOfANamespaceWithoutANameIsFound) {
  formats::NcuProfile profile;
  profile.metrics = {{"m", ""}};
  profile.launches = {{"scan", {{0, 1.0}}},
                      {"void a::(anonymous namespace)::sum<4>(int)", {{0, 1.0}}}};
  const KernelCounters counters =
      counters_of(profile, {kernel("void at::(anonymous namespace)::scan<float>(int)", 2, 50)});
  ASSERT_EQ(counters.rows.size(), 1U);
  EXPECT_EQ(counters.rows[0].launches, 1);
  EXPECT_EQ(counters.unmatched_launches, 1);  // not taken for a scan
}

}  // namespace
}  // namespace headroom::ops
