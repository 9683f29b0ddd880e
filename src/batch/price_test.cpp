#include "batch/price.h"

#include <gtest/gtest.h>

namespace headroom::batch {
namespace {

TEST(Price, OfAMillionTokens) {
  // 2.50 an hour over 18 million tokens an hour.
  const Interval cost = cost_of_million(2.5, 1, {4000, 5000, 6000});
  EXPECT_NEAR(cost.expected, 2.5 / 18, 1e-12);
  EXPECT_NEAR(cost.low, 2.5 / 21.6, 1e-12);
  EXPECT_NEAR(cost.high, 2.5 / 14.4, 1e-12);
  EXPECT_NEAR(cost_of_million(2.5, 0.5, {5000, 5000, 5000}).expected, 5.0 / 18, 1e-12);
}

}  // namespace
}  // namespace headroom::batch
