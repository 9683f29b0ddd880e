#include "report/pack/html.h"

#include <gtest/gtest.h>

#include "report/pack/ranks.h"
#include "report/page/page_marks.h"
#include "report/sample_pack.h"

namespace headroom::report {
namespace {

std::string page_of(const pack::PackAnswer& answer, const std::string& words) {
  return render_page({words, words, "1.2.3", words, pack_sections(answer)});
}

TEST(PackPage, NothingFromOutsideBecomesMarkup) {
  const std::string tame = page_of(sample_pack("name", 200), "name");
  for (const std::string hostile : kHostileWords) {
    expect_same_marks(page_of(sample_pack(hostile, 200), hostile), tame, hostile);
  }
}

// Two recordings that differ in all of their names, and a rank that cannot be read.
std::string several_page(const std::string& words) {
  pack::PackAnswer before = sample_pack(words + " before", 100);
  const auto comparison = pack::compare(sample_pack(words, 200), before);
  EXPECT_TRUE(comparison);
  pack::RanksAnswer ranks;
  ranks.ranks.resize(2);
  ranks.ranks[0].file = words;
  ranks.ranks[1].file = words;
  ranks.ranks[1].error = Error{ErrorCode::bad_input, words, words, words};
  std::vector<Section> sections = ranks_sections(ranks);
  for (Section& section : comparison_sections(*comparison)) sections.push_back(std::move(section));
  return render_page({words, words, "1.2.3", words, sections});
}

TEST(PackPage, NothingFromOutsideBecomesMarkupWhereThereAreSeveral) {
  const std::string tame = several_page("name");
  for (const std::string hostile : kHostileWords) {
    expect_same_marks(several_page(hostile), tame, hostile);
  }
}

// Beyond kMostMapBlocks the page hardly grows, and says what it merged.
TEST(PackPage, StaysBoundedHoweverManyTheRequests) {
  const std::string page = page_of(sample_pack("run", 400'000), "run");
  EXPECT_LT(page.size(), 4'000'000U);
  EXPECT_NE(page.find("\"merged_count\":350000"), std::string::npos);
}

TEST(PackPage, SurvivesAnAnswerOfNothing) {
  const std::string page = page_of(pack::PackAnswer{}, "");
  EXPECT_NE(page.find("</html>"), std::string::npos);
}

TEST(PackPage, SaysWhatIsNeededWhereStreamsShareMemory) {
  pack::PackAnswer answer = sample_pack("run", 100);
  pack::Understanding& found = answer.understanding.emplace();
  found.plan.emplace().bytes = int64_t{3} << 30;
  found.apart_bytes = int64_t{3} << 30;
  EXPECT_EQ(page_of(answer, "x").find("; apart "), std::string::npos);
  found.apart_bytes = int64_t{4} << 30;
  EXPECT_NE(page_of(answer, "x").find("; apart 4.00 GiB"), std::string::npos);
}

// Times of an instance may be anything: the map has their ranks.
TEST(PackPage, AnInstanceIsDrawnByTheRanksOfItsTimes) {
  pack::PackAnswer answer;
  answer.requests.resize(2);
  answer.requests[0].request = {-(int64_t{1} << 60), int64_t{1} << 60, 3};
  answer.requests[1].request = {5, int64_t{1} << 60, 4};
  answer.requests[1].offset = 3;
  answer.plan.size = Bytes(7);
  const std::string page = page_of(answer, "x");
  EXPECT_NE(page.find("\"moments\":2,"), std::string::npos);
  EXPECT_NE(page.find("\"has_recording\":false"), std::string::npos);
}

}  // namespace
}  // namespace headroom::report
