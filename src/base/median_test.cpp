#include "base/median.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace headroom {
namespace {

TEST(Median, IsInTheMiddle) {
  EXPECT_EQ(median(std::vector<double>{}), 0);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
  EXPECT_EQ(median(std::vector<double>{3, 1, 9}), 3);
  EXPECT_EQ(median(std::vector<double>{4, 1, 9, 2}), 3);
}

TEST(Median, OfAnythingCannotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(median(std::vector<int64_t>{kMost, kMost}), kMost);
  EXPECT_EQ(median(std::vector<int64_t>{-kMost, kMost}), 0);
}

}  // namespace
}  // namespace headroom
