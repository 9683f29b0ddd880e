#include "base/small_vector.h"

#include <gtest/gtest.h>

#include <numeric>

namespace headroom {
namespace {

using Short = SmallVector<int64_t, 3>;

std::vector<int64_t> all_of(const Short& values) { return {values.begin(), values.end()}; }

TEST(SmallVector, IsAVectorAtEverySize) {
  Short values;
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(all_of(values), expected);
    const Short copy = values;
    EXPECT_EQ(copy, values);
    Short moved = Short(values);
    EXPECT_EQ(all_of(moved), expected);
    values.push_back(i);
    expected.push_back(i);
    EXPECT_EQ(values.back(), i);
    EXPECT_NE(copy, values);
  }
}

TEST(SmallVector, WhatWasMovedFromIsEmptyAndUsable) {
  for (const size_t count : {2, 9}) {
    Short from(count, 7);
    const Short to = std::move(from);
    EXPECT_EQ(to.size(), count);
    EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move): that is what is tested
    from.push_back(1);
    EXPECT_EQ(all_of(from), std::vector<int64_t>{1});
    EXPECT_EQ(to[0], 7);
  }
}

TEST(SmallVector, AssignsBetweenShortAndLong) {
  const Short brief{1, 2};
  const Short lengthy(std::vector<int64_t>{1, 2, 3, 4, 5});
  Short values = lengthy;
  values = brief;
  EXPECT_EQ(values, brief);
  values = lengthy;
  EXPECT_EQ(values, lengthy);
  values = Short{9};
  EXPECT_EQ(values, Short{9});
  values.resize(6, 4);
  EXPECT_EQ(all_of(values), (std::vector<int64_t>{9, 4, 4, 4, 4, 4}));
}

}  // namespace
}  // namespace headroom
