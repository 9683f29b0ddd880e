#include "report/ops/text.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "report/ops/comparison.h"
#include "report/sample_ops.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

text::Terminal wide(int columns) {
  text::Terminal terminal;
  terminal.columns = columns;
  return terminal;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

void expect_within(const std::string& text, int columns) {
  for (const std::string& line : lines_of(text)) {
    EXPECT_LE(text::display_width(line), columns) << line;
  }
}

// Nothing is broken by the terminal itself, which would break within words.
TEST(OpsText, NarrowTerminalsHaveNoLongerLines) {
  SampleOps sample = sample_ops("run", 300);
  sample.answer.trace.is_partial = true;
  sample.answer.counters.emplace();
  expect_within(ops_text(sample.answer, wide(60)), 60);
  sample.answer.replay->error_pct = 30;  // not to be trusted
  expect_within(ops_text(sample.answer, wide(60)), 60);
  ops::OpsComparison comparison = sample_comparison("run");
  comparison.after.device = "a device with a name that is as long as names of devices can be";
  comparison.after.is_partial = true;
  expect_within(ops_comparison_text(comparison, wide(60)), 60);
}

TEST(OpsText, TitlesThatDifferAtTheirEndStayApart) {
  SampleOps sample = sample_ops("run", 300);
  sample.answer.replay->error_pct = 30;  // so that they stand in the table alone
  const ops::HorizonChange change{"gemm_int8", "", 1.1, 1.0, 1.2, 1.3};
  sample.answer.horizon.assign(2, change);
  sample.answer.horizon[0].title = "linear layers in int8, quantized within";
  sample.answer.horizon[1].title = "linear layers in int8, quantized apart";
  const std::string text = ops_text(sample.answer, wide(48));
  EXPECT_NE(text.find(" within "), std::string::npos) << text;
  EXPECT_NE(text.find(" apart "), std::string::npos) << text;
}

// A share has words, also where the column that says of which limit is left out.
TEST(OpsText, TheShareOfTheLimitHasAHeading) {
  const std::string text = ops_text(sample_ops("run", 300).answer, wide(60));
  for (const std::string& line : lines_of(text)) {
    if (line.find("to win") == std::string::npos) continue;
    EXPECT_TRUE(line.ends_with("of the limit")) << line;
    return;
  }
  ADD_FAILURE() << "no roofline: " << text;
}

}  // namespace
}  // namespace headroom::report
