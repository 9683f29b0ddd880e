#include "report/ops/html.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/ops/comparison_html.h"
#include "report/ops/predicted_html.h"
#include "report/ops/ranks_html.h"
#include "report/page/roofline_chart.h"
#include "report/sample_ops.h"

namespace headroom::report {
namespace {

std::string page_of(const SampleOps& sample) {
  return render_page({"t", "ops", "0", "", ops_sections(sample.answer, sample.timeline)});
}

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(OpsHtml, HasItsCards) {
  const std::string page = page_of(sample_ops("run", 300));
  for (const char* id : {"timeline", "accounts", "horizon", "roofline", "operators", "trust"}) {
    EXPECT_EQ(count(page, "id=\"" + std::string(id) + "\""), 1U) << id;
  }
  EXPECT_EQ(count(page, "data-chart=\"timeline\""), 1U);
  EXPECT_EQ(count(page, "<circle class=\"dot\""), 2U);  // mm and add
  EXPECT_EQ(count(page, "headroomMap = {"), 1U);
  EXPECT_EQ(count(page, "class AddressMap"), 0U);
}

// Of two traces, of several ranks, and of a step that nobody ran.
TEST(OpsHtml, OtherAnswersHaveTheirCards) {
  const auto page = [](std::vector<Section> sections) {
    return render_page({"t", "ops", "0", "", std::move(sections)});
  };
  const std::string compared = page(ops_comparison_sections(sample_comparison("run")));
  EXPECT_EQ(count(compared, "id=\"changes\""), 1U);
  EXPECT_EQ(count(compared, "id=\"groups\""), 1U);
  EXPECT_GE(count(compared, "class=\"lane tone-no\""), 1U);
  EXPECT_EQ(count(compared, "before: "), 0U);
  ops::OpsComparison devices = sample_comparison("run");
  devices.before.device = "NVIDIA A100";
  devices.after.device = "NVIDIA H100";
  devices.changes.front().name = "void " + std::string(200, 'k');
  const std::string moved = page(ops_comparison_sections(devices));
  EXPECT_EQ(count(moved, "before: NVIDIA A100</span>"), 1U);
  EXPECT_EQ(count(moved, "after: NVIDIA H100</span>"), 1U);
  EXPECT_EQ(count(moved, std::string(200, 'k')), 1U);  // where a pointer rests on it
  EXPECT_EQ(count(moved, "title=\"void kkkk"), 1U);
  const std::string ranks = page(ops_ranks_sections(sample_ranks("run")));
  EXPECT_EQ(count(ranks, "id=\"waiting\""), 1U);
  EXPECT_EQ(count(ranks, "class=\"lane tone-no\""), 1U);   // the straggler
  EXPECT_EQ(count(ranks, "class=\"lane tone-yes\""), 2U);  // the others
  EXPECT_EQ(count(ranks, "class=\"stackbar\""), 3U);
  const std::string predicted = page(ops_predicted_sections(sample_predicted("run")));
  EXPECT_EQ(count(predicted, "id=\"parts\""), 1U);
  EXPECT_EQ(count(predicted, "class=\"whisker\""), 2U);
  EXPECT_EQ(count(predicted, "does not fit"), 1U);
  const char* const hostile = "<script>window.hit=1</script>\"'>";
  for (const std::string& one : {page(ops_comparison_sections(sample_comparison(hostile))),
                                 page(ops_ranks_sections(sample_ranks(hostile))),
                                 page(ops_predicted_sections(sample_predicted(hostile)))}) {
    EXPECT_EQ(one.find("<script>window.hit"), std::string::npos);
  }
}

TEST(OpsHtml, HostileNamesStayNames) {
  const std::string page = page_of(sample_ops("<script>window.hit=1</script>\"'>", 300));
  EXPECT_EQ(page.find("<script>window.hit"), std::string::npos);
}

// Nothing to count, nothing to replay: no card claims anything.
TEST(OpsHtml, WithoutHorizonAndRoofline) {
  SampleOps sample = sample_ops("run", 30);
  sample.answer.horizon.clear();
  sample.answer.replay.reset();
  sample.answer.roofline.reset();
  const std::string page = page_of(sample);
  EXPECT_EQ(page.find("id=\"horizon\""), std::string::npos);
  EXPECT_EQ(page.find("id=\"roofline\""), std::string::npos);
  EXPECT_TRUE(roofline_chart({}).empty());
}

}  // namespace
}  // namespace headroom::report
