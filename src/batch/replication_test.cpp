#include "batch/replication.h"

#include <gtest/gtest.h>

namespace headroom::batch {
namespace {

TEST(Replication, OneServerGainsNothing) { EXPECT_DOUBLE_EQ(replication_speedup(1, 0.36), 1); }

TEST(Replication, TwoServersByHand) {
  // g = 0.4: R2 = 0.6 (1 + 0.6), X2 = 2 / (0.4 + 0.96).
  EXPECT_NEAR(replication_speedup(2, 0.4), 2 / 1.36, 1e-12);
}

TEST(Replication, TheBoundIsAGpuThatNeverWaits) {
  double before = 1;
  for (int count = 2; count <= 12; ++count) {
    const double gain = replication_speedup(count, 0.3);
    EXPECT_GT(gain, before);
    EXPECT_LT(gain, 1 / 0.7);
    before = gain;
  }
  EXPECT_NEAR(before, 1 / 0.7, 1e-4);
}

TEST(Replication, WithoutAHostGapThereIsNothingToWin) {
  EXPECT_DOUBLE_EQ(replication_speedup(4, 0), 1);
}

}  // namespace
}  // namespace headroom::batch
