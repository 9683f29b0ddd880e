#include "report/fit/text.h"

#include <gtest/gtest.h>

#include <sstream>

#include "report/sample_answer.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(FitText, TheFirstLineIsTheAnswer) {
  fit::FitAnswer answer = sample_answer();
  EXPECT_EQ(
      first_line(fit_text(answer, {})),
      "yes: mistralai/Mistral-7B-v0.1 at batch 4 x seq 4096 fits a100-sxm-80gb with 12.32 GiB "
      "of room");
  answer.room.low = Bytes(0);
  EXPECT_NE(first_line(fit_text(answer, {})).find("in use at the peak, the rest is cache"),
            std::string::npos);
  answer.verdict = fit::Verdict::no;
  answer.room = {Bytes(-3 * kGiB), Bytes(-2 * kGiB), Bytes(-kGiB)};
  EXPECT_EQ(first_line(fit_text(answer, {})),
            "no: mistralai/Mistral-7B-v0.1 at batch 4 x seq 4096 does not fit a100-sxm-80gb: 2.00 "
            "GiB too little");
  answer.verdict = fit::Verdict::at_risk;
  answer.room = {Bytes(-kGiB), Bytes(kGiB), Bytes(2 * kGiB)};
  EXPECT_EQ(first_line(fit_text(answer, {})).substr(0, 9), "at risk: ");
}

TEST(FitText, ColourOnlyWhereItIsWanted) {
  const fit::FitAnswer answer = sample_answer();
  EXPECT_EQ(fit_text(answer, {}).find('\x1b'), std::string::npos);
  text::Terminal terminal;
  terminal.colour = true;
  EXPECT_NE(fit_text(answer, terminal).find('\x1b'), std::string::npos);
}

TEST(FitText, StaysInsideANarrowTerminal) {
  for (const int columns : {40, 44, 60, 80, 120}) {
    text::Terminal terminal;
    terminal.columns = columns;
    std::istringstream lines(fit_text(sample_answer(), terminal));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(text::display_width(line), columns) << line;
    }
  }
}

TEST(FitText, FiguresAreNeverCut) {
  text::Terminal terminal;
  terminal.columns = 40;
  const std::string text = fit_text(sample_answer(), terminal);
  for (const char* figure : {"66.16 GiB", "66.29 GiB", "66.78 GiB", "66.49 GiB", "67.27 GiB",
                             "40.48 GiB", "50.78 GiB"}) {
    EXPECT_NE(text.find(figure), std::string::npos) << figure;
  }
}

TEST(FitText, ANameCannotDriveTheTerminal) {
  const std::string text = fit_text(sample_answer_with("a\x1b[2J\x07\nb"), {});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
}

TEST(FitText, AgainstCountsWhatIsNotModelled) {
  EXPECT_EQ(first_line(against_text(sample_against(), {})),
            "1 of 2 figures of measured.csv modelled, 1 unsupported");
  EXPECT_NE(against_text(sample_against(), {}).find("\nunsupported: "), std::string::npos);
}

}  // namespace
}  // namespace headroom::report
