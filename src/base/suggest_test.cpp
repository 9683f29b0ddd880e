#include "base/suggest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace headroom {
namespace {

constexpr std::array<std::string_view, 4> kWords{"batch", "checkpointing", "device", "dtype"};

TEST(Suggest, FindsTheWordBehindATypo) {
  EXPECT_EQ(nearest_word("bacth", kWords), "batch");
  EXPECT_EQ(nearest_word("devise", kWords), "device");
  EXPECT_EQ(nearest_word("check", kWords), "checkpointing");
  EXPECT_EQ(nearest_word("DTYPE", kWords), "dtype");
  EXPECT_EQ(nearest_word("ZERO2", std::array<std::string_view, 2>{"zero1", "zero2"}), "zero2");
}

TEST(Suggest, SaysNothingRatherThanNonsense) {
  EXPECT_EQ(nearest_word("zebra", kWords), "");
  EXPECT_EQ(nearest_word("", kWords), "");
  EXPECT_EQ(nearest_word(std::string(5000, 'b'), kWords), "");
}

}  // namespace
}  // namespace headroom
