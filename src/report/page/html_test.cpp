#include "report/page/html.h"

#include <gtest/gtest.h>

#include "report/fit/html.h"
#include "report/page/charts.h"
#include "report/page/page_marks.h"
#include "report/sample_answer.h"

namespace headroom::report {
namespace {

std::string page_of(const fit::FitAnswer& answer, const std::string& words) {
  return render_page({words, words, "1.2.3", words, fit_sections(answer)});
}

TEST(Page, NothingFromOutsideBecomesMarkup) {
  const std::string tame = page_of(sample_answer_with("name"), "name");
  for (const std::string hostile : kHostileWords) {
    const std::string page = page_of(sample_answer_with(hostile), hostile);
    expect_same_marks(page, tame, hostile);
    // A quotation mark that came in is either &quot; or, in a chart's data, \".
    EXPECT_EQ(count_of(page, "\"") - count_of(page, "\\\""),
              count_of(tame, "\"") - count_of(tame, "\\\""))
        << hostile;
  }
}

TEST(Page, LoadsNothingFromElsewhere) {
  const std::string page = page_of(sample_answer(), "name");
  for (const char* reference : {"http://", "https://", "src=", "url(http", "@import", "fetch("}) {
    const size_t allowed = std::string_view(reference) == "http://" ? 1 : 0;  // SVG's namespace
    EXPECT_EQ(count_of(page, reference), allowed) << reference;
  }
  EXPECT_NE(page.find("Content-Security-Policy\" content=\"default-src 'none'"), std::string::npos);
}

TEST(Page, StaysSmallHoweverLongTheStep) {
  EXPECT_LT(page_of(sample_answer(2000), "name").size(), 500'000U);
}

TEST(Page, SurvivesAnAnswerOfNothing) {
  const std::string page = page_of(fit::FitAnswer{}, "");
  EXPECT_NE(page.find("</html>"), std::string::npos);
  EXPECT_EQ(page.find("nan%"), std::string::npos);
}

TEST(Html, EscapesAndRepairs) {
  Html html;
  html.text("<a href=\"x\">'&'\x01\xff</a>");
  EXPECT_EQ(html.markup(),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\xEF\xBF\xBD\xEF\xBF\xBD&lt;/a&gt;");
}

TEST(Html, FlagsStayWholeAndListsBreakBehindTheirCommas) {
  Html html;
  html.words("zero3:4,tp:2 and --offload optimizer, <b>");
  EXPECT_EQ(
      html.markup(),
      "zero3:4,<wbr>tp:2 and <span class=\"flag\">--offload</span> optimizer,<wbr> &lt;b&gt;");
  Html number;
  number.words("seq 131,072");
  EXPECT_EQ(number.markup(), "seq 131,072");
}

TEST(Charts, ThinningKeepsThePeakTheEndsAndTheExtremes) {
  std::vector<Bytes> values(10'000, Bytes(5));
  values[7] = Bytes(9);
  values[5'001] = Bytes(1);
  values[9'998] = Bytes(100);
  const std::vector<size_t> kept = thin_out(values, 1234, 100);
  EXPECT_LE(kept.size(), 100U);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  for (const size_t index : {0, 7, 1234, 5'001, 9'998, 9'999}) {
    EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), index)) << index;
  }
}

TEST(Charts, FewPointsAreAllKept) {
  EXPECT_EQ(thin_out({Bytes(1), Bytes(2), Bytes(3)}, 1, 100).size(), 3U);
  EXPECT_TRUE(thin_out({}, 0, 100).empty());
}

TEST(Charts, BarsBeyondTheLimitStayInsideTheLane) {
  LimitBar bar;
  bar.name = "too much";
  bar.tone = "no";
  bar.low = Bytes(190);
  bar.expected = Bytes(200);
  bar.high = Bytes(210);
  const std::string markup = limit_bars({bar}, {"device", Bytes(100)}).markup();
  EXPECT_NE(markup.find("class=\"fill\" style=\"width:93.4"), std::string::npos) << markup;
}

// What a bar is made of fills it, each part by its share of what is expected.
TEST(Charts, ABarMayShowItsParts) {
  LimitBar bar;
  bar.name = "zero2:8";
  bar.tone = "yes";
  bar.low = bar.expected = bar.high = Bytes(80);
  bar.parts = {{"parameters", "parameters", Bytes(60)}, {"gradients", "gradients", Bytes(20)}};
  const std::string markup = limit_bars({bar}, {"device", Bytes(100)}).markup();
  EXPECT_NE(markup.find("class=\"fill parts\""), std::string::npos) << markup;
  EXPECT_NE(markup.find("width:75.000%;background-color:var(--parameters)"), std::string::npos)
      << markup;
  EXPECT_NE(markup.find("width:25.000%;background-color:var(--gradients)"), std::string::npos)
      << markup;
}

TEST(Charts, ABarsNameMayBreakBehindCommas) {
  LimitBar bar;
  bar.name = "tp:8,pp:4,<dp";
  bar.tone = "yes";
  const std::string markup = limit_bars({bar}, {"device", Bytes(100)}).markup();
  EXPECT_NE(markup.find(">tp:8,<wbr>pp:4,<wbr>&lt;dp<"), std::string::npos) << markup;
}

}  // namespace
}  // namespace headroom::report
