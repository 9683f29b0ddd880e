#include "text/terminal.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "text/progress.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

TerminalFacts screen() {
  TerminalFacts facts;
  facts.is_terminal = true;
  facts.window_columns = 100;
  facts.term = "xterm";
  return facts;
}

TEST(Terminal, ColourFollowsTheConventions) {
  EXPECT_TRUE(decide_terminal(screen()).colour);
  EXPECT_FALSE(decide_terminal(TerminalFacts{}).colour);
  TerminalFacts facts = screen();
  facts.no_color = "1";
  facts.force_color = "1";
  EXPECT_FALSE(decide_terminal(facts).colour);
  EXPECT_TRUE(decide_terminal(facts, ColourChoice::always).colour);
  facts.no_color = "";
  EXPECT_TRUE(decide_terminal(facts).colour);
  EXPECT_FALSE(decide_terminal(facts, ColourChoice::never).colour);
  facts = TerminalFacts{};
  facts.force_color = "1";
  EXPECT_TRUE(decide_terminal(facts).colour);
  EXPECT_FALSE(decide_terminal(facts).animation);
  facts.force_color = "0";
  EXPECT_FALSE(decide_terminal(facts).colour);
  facts = screen();
  facts.term = "dumb";
  EXPECT_FALSE(decide_terminal(facts).colour);
  EXPECT_FALSE(decide_terminal(facts).animation);
}

TEST(Terminal, ColumnsAreBoundedAndAbsentOnAPipe) {
  TerminalFacts facts = screen();
  EXPECT_EQ(decide_terminal(facts).columns, 100);
  facts.columns = "60";
  EXPECT_EQ(decide_terminal(facts).columns, 60);
  for (const char* bad : {"0", "-5", "x", "60x", "99999999999999", ""}) {
    facts.columns = bad;
    EXPECT_EQ(decide_terminal(facts).columns, 100) << bad;
  }
  facts.columns = "1";
  EXPECT_EQ(decide_terminal(facts).columns, 20);
  facts.window_columns = 0;
  facts.columns.reset();
  EXPECT_EQ(decide_terminal(facts).columns, 80);
  facts.is_terminal = false;
  EXPECT_EQ(decide_terminal(facts).columns, 0);
}

TEST(Terminal, PaintsOnlyWithColour) {
  EXPECT_EQ(paint("x", Style::bad, false), "x");
  EXPECT_EQ(paint("x", Style::bad, true), "\x1B[31mx\x1B[0m");
  EXPECT_EQ(paint("x", Style::plain, true), "x");
}

TEST(Utf8, Widths) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("é"), 1);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("🚀"), 2);
  EXPECT_EQ(display_width("\xFF"), 1);
  EXPECT_EQ(display_width(""), 0);
}

TEST(Utf8, DecodingRefusesWhatIsNotUtf8) {
  for (const char* bad : {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80",
                          "\xF4\x90\x80\x80", "\xC3", "\xE2\x82", "\xC3("}) {
    const DecodedCharacter character = decode_utf8(bad);
    EXPECT_FALSE(character.valid) << bad;
    EXPECT_EQ(character.length, 1U);
  }
  EXPECT_EQ(decode_utf8("€").code, 0x20ACU);
  EXPECT_EQ(decode_utf8("").length, 0U);
}

TEST(Utf8, PrintableDisarms) {
  EXPECT_EQ(printable("a\x1B[31m\n\u202Eb\xFF€"), "a\uFFFD[31m\uFFFD\uFFFDb\uFFFD€");
}

TEST(Utf8, ElideCutsByColumns) {
  EXPECT_EQ(elide("abcdef", 6), "abcdef");
  EXPECT_EQ(elide("abcdef", 4), "abc…");
  EXPECT_EQ(elide("日本語", 4), "日…");
  EXPECT_EQ(elide("abc", 1), "…");
  EXPECT_EQ(elide("abc", 0), "");
}

TEST(Utf8, ElideMiddleKeepsBothEnds) {
  EXPECT_EQ(elide_middle("abcdef", 6), "abcdef");
  EXPECT_EQ(elide_middle("abcdef", 5), "ab…ef");
  EXPECT_EQ(elide_middle("abcdef", 4), "ab…f");
  EXPECT_EQ(elide_middle("日本語日本語", 7), "日…語");
  EXPECT_EQ(elide_middle("abcdef", 2), "a…");
  EXPECT_EQ(elide_middle("abc", 1), "…");
  EXPECT_EQ(elide_middle("abc", 0), "");
}

class ProgressTest : public ::testing::Test {
 protected:
  std::string run(bool animation, bool quiet, int64_t total, int milliseconds) {
    Terminal terminal;
    terminal.animation = animation;
    terminal.columns = 80;
    std::string out;
    auto now = std::chrono::steady_clock::time_point();
    {
      Progress progress(
          "work", total, terminal, quiet, [&](std::string_view s) { out += s; },
          [&] { return now; });
      for (int i = 0; i < 100; ++i) {
        now += std::chrono::milliseconds(milliseconds);
        progress.update(i);
      }
    }
    return out;
  }
};

TEST_F(ProgressTest, SilentOnAPipeWhenQuietAndWhenQuick) {
  EXPECT_EQ(run(false, false, 100, 50), "");
  EXPECT_EQ(run(true, true, 100, 50), "");
  EXPECT_EQ(run(true, false, 100, 4), "");
}

TEST_F(ProgressTest, DrawsSeldomAndWipesTheLine) {
  const std::string out = run(true, false, 100, 50);
  EXPECT_NE(out.find("work  "), std::string::npos);
  EXPECT_NE(out.find("51%"), std::string::npos);
  EXPECT_TRUE(out.ends_with("\r\x1B[K"));
  EXPECT_LE(std::count(out.begin(), out.end(), '\r'), 5'000 / 100 + 1);
  EXPECT_NE(run(true, false, 0, 50).find("work  99"), std::string::npos);
}

TEST_F(ProgressTest, ATotalMayBeFoundOutOnTheWay) {
  Terminal terminal;
  terminal.animation = true;
  terminal.columns = 80;
  std::string out;
  auto now = std::chrono::steady_clock::time_point();
  Progress progress(
      "work", 0, terminal, false, [&](std::string_view s) { out = s; }, [&] { return now; });
  now += std::chrono::seconds(1);
  progress.update(5);
  EXPECT_EQ(out.find('%'), std::string::npos) << out;
  now += std::chrono::seconds(1);
  progress.set_total(20);
  progress.update(5);
  EXPECT_NE(out.find("25%"), std::string::npos) << out;
}

TEST_F(ProgressTest, ANoteStandsBehindTheBarWithinTheLine) {
  Terminal terminal;
  terminal.animation = true;
  terminal.columns = 60;
  std::string out;
  auto now = std::chrono::steady_clock::time_point();
  {
    Progress progress(
        "work", 10, terminal, false, [&](std::string_view s) { out = s; }, [&] { return now; });
    now += std::chrono::seconds(1);
    progress.set_note("about 3 min left");
    progress.update(5);
    EXPECT_NE(out.find("50%  about 3 min left"), std::string::npos) << out;
    EXPECT_LT(display_width(out.substr(4)), 60);  // behind the sequence that wipes the line
  }
}

TEST(TimeLeft, IsRoughAndSilentWhereItIsNotKnown) {
  EXPECT_EQ(time_left(20), "less than a minute left");
  EXPECT_EQ(time_left(170), "about 3 min left");
  EXPECT_EQ(time_left(3 * 3600), "about 3 h left");
  for (const double none : {0.0, -5.0, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(time_left(none), "");
  }
}

}  // namespace
}  // namespace headroom::text
