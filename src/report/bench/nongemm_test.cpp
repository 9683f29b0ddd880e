#include "report/bench/nongemm.h"

#include <gtest/gtest.h>

#include "report/bench/nongemm_html.h"

namespace headroom::report {
namespace {

constexpr const char* kHostile = "<script>window.hit=1</script>\"'>";

bench::NongemmAnswer answer() {
  bench::NongemmRow row;
  row.setting = {kHostile, "pytorch", "forward", 1, "fp32", "none", "none"};
  row.seconds = 0.1;
  row.groups = {{"gemm", 60}, {"attention", 10}, {kHostile, 30}};
  row.gemm_pct = 60;
  row.attention_pct = 10;
  row.nongemm_pct = 30;
  row.covered_pct = 99;
  bench::NongemmRecord refused;
  refused.setting = row.setting;
  refused.reason = kHostile;
  bench::NongemmAnswer answer;
  answer.machine.product = kHostile;
  answer.machine.kind = "cpu";
  answer.rows = {row};
  answer.refused = {refused, refused};
  return answer;
}

TEST(NongemmReport, HostileNamesStayNames) {
  const std::string page = render_page({"t", "bench", "0", "", nongemm_sections(answer())});
  EXPECT_EQ(page.find("<script>window.hit"), std::string::npos);
  for (const char* id : {"id=\"shares\"", "id=\"figures\"", "id=\"trust\""}) {
    EXPECT_NE(page.find(id), std::string::npos) << id;
  }
}

// What an engine lacks it lacks for all settings: one line.
TEST(NongemmReport, RefusalsOfOneReasonAreOneLine) {
  const std::string words = nongemm_text(answer(), "", text::Terminal{});
  EXPECT_NE(words.find("PyTorch eager, 2 settings: "), std::string::npos) << words;
  EXPECT_NE(words.find("Non-GEMM work takes 30.0 %"), std::string::npos) << words;
}

TEST(NongemmReport, ANoteOfSeveralSettingsIsOneLine) {
  auto told = answer();
  told.rows[0].setting.model = "mine";
  told.rows[0].notes = {"stated: 100 boxes"};
  told.rows.push_back(told.rows[0]);
  told.rows[1].notes.emplace_back("made of plain operators");
  const std::string words = nongemm_text(told, "", text::Terminal{});
  EXPECT_NE(words.find("mine, 2 settings: stated: 100 boxes.\n"), std::string::npos) << words;
  EXPECT_NE(words.find("mine, PyTorch eager, batch 1, fp32: made of plain"), std::string::npos);
  EXPECT_EQ(words.find("stated"), words.rfind("stated"));
}

TEST(NongemmReport, NothingMeasuredClaimsNothing) {
  bench::NongemmAnswer nothing;
  const auto sections = nongemm_sections(nothing);
  EXPECT_EQ(sections.size(), 2U);
  EXPECT_EQ(nongemm_text(nothing, "", text::Terminal{}).find(" % of"), std::string::npos);
}

}  // namespace
}  // namespace headroom::report
