#include "text/ascii.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

TEST(Ascii, LowersLettersAndNothingElse) {
  EXPECT_EQ(lower("GPT-2 XL_9"), "gpt-2 xl_9");
  EXPECT_EQ(lower("\xC3\x84"), "\xC3\x84");
  EXPECT_EQ(lower(""), "");
  EXPECT_EQ(upper("e2e"), "E2E");
}

TEST(Ascii, TrimsBlanksAtTheEnds) {
  EXPECT_EQ(trim("  a b "), "a b");
  EXPECT_EQ(trim("\ta"), "\ta");
  EXPECT_EQ(trim("   "), "");
}

}  // namespace
}  // namespace headroom::text
