#include "text/paragraph.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

TEST(Paragraph, BreaksAtSpacesAndIndents) {
  EXPECT_EQ(paragraph("one two three", 2, 10), "one two\n  three");
  EXPECT_EQ(paragraph("one two three", 0, 100), "one two three");
  EXPECT_EQ(paragraph("", 4, 10), "");
}

TEST(Paragraph, AWordLongerThanALineStandsAlone) {
  EXPECT_EQ(paragraph("a incomprehensibilities b", 1, 8), "a\n incomprehensibilities\n b");
}

TEST(Paragraph, CountsColumnsNotBytes) { EXPECT_EQ(paragraph("öö öö", 0, 5), "öö öö"); }

}  // namespace
}  // namespace headroom::text
