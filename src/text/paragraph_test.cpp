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

TEST(Wrapped, BreaksInTerminalsAlone) {
  Terminal terminal;
  EXPECT_EQ(wrapped("one two three", terminal), "one two three\n");
  terminal.columns = 8;
  EXPECT_EQ(wrapped("one two three", terminal, 2), "one\n  two\n  three\n");
  terminal.colour = true;
  EXPECT_EQ(wrapped("one two three", terminal, 0, Style::bold), "\x1B[1mone two\nthree\x1B[0m\n");
}

TEST(Wrapped, MarksWhatStandsOnOneLine) {
  Terminal terminal;
  terminal.colour = true;
  terminal.columns = 9;
  EXPECT_EQ(wrapped_marked("one two three", "one", Style::bold, terminal),
            "\x1B[1mone\x1B[0m two\nthree\n");
  EXPECT_EQ(wrapped_marked("one two three", "two three", Style::bold, terminal),
            "one two\nthree\n");
  EXPECT_EQ(wrapped_marked("one two three", "four", Style::bold, terminal), "one two\nthree\n");
}

}  // namespace
}  // namespace headroom::text
