#include "base/interner.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom {
namespace {

TEST(Interner, NumbersCountUpAndStay) {
  Interner interner;
  EXPECT_EQ(interner.intern("alloc"), 0u);
  EXPECT_EQ(interner.intern(""), 1u);
  EXPECT_EQ(interner.intern("free"), 2u);
  EXPECT_EQ(interner.intern("alloc"), 0u);
  EXPECT_EQ(interner.size(), 3u);
  EXPECT_EQ(interner[1], "");
  EXPECT_EQ(interner.find("free"), 2u);
  EXPECT_FALSE(interner.find("fre"));
}

TEST(Interner, ViewsOutliveGrowth) {
  Interner interner;
  const std::string long_one(100'000, 'x');
  interner.intern("first");
  interner.intern(long_one);
  const std::string_view first = interner[0];
  for (int i = 0; i < 50'000; ++i) {
    ASSERT_EQ(interner.intern("name" + std::to_string(i)), static_cast<uint32_t>(i + 2));
  }
  EXPECT_EQ(first.data(), interner[0].data());
  EXPECT_EQ(interner[1], long_one);
  for (int i = 0; i < 50'000; ++i) {
    ASSERT_EQ(interner[static_cast<uint32_t>(i + 2)], "name" + std::to_string(i));
    ASSERT_EQ(interner.intern("name" + std::to_string(i)), static_cast<uint32_t>(i + 2));
  }
}

// Strings that differ in length alone, or in one byte anywhere.
TEST(Interner, TellsNeighboursApart) {
  Interner interner;
  for (size_t length = 0; length < 40; ++length) {
    const std::string zeros(length, '\0');
    EXPECT_EQ(interner.find(zeros), std::nullopt);
    interner.intern(zeros);
    for (size_t i = 0; i < length; ++i) {
      std::string one = zeros;
      one[i] = 1;
      EXPECT_EQ(interner.find(one), std::nullopt) << length << " " << i;
      interner.intern(one);
    }
  }
}

}  // namespace
}  // namespace headroom
