#include "text/command_words.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

using Words = std::vector<std::string>;

TEST(CommandWords, BlanksQuotationsAndBackslashes) {
  EXPECT_EQ(*command_words("notify  --to 'the team' \"a\\\"b\"\tc\\ d"),
            (Words{"notify", "--to", "the team", "a\"b", "c d"}));
  EXPECT_EQ(*command_words("a'b c'd ''"), (Words{"ab cd", ""}));
  EXPECT_EQ(*command_words("$HOME | x; *"), (Words{"$HOME", "|", "x;", "*"}));
  EXPECT_EQ(*command_words("'a\\b' c\\"), (Words{"a\\b", "c\\"}));
  EXPECT_TRUE(command_words(" \t ")->empty());
}

TEST(CommandWords, AQuotationMustEnd) {
  EXPECT_FALSE(command_words("echo 'a"));
  EXPECT_FALSE(command_words("echo \"a\\\""));
}

}  // namespace
}  // namespace headroom::text
