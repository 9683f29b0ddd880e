#include "report/fit/methods.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/sample_answer.h"

namespace headroom::report {
namespace {

// A search of one row, the second stage of two, which is the sample's answer.
fit::MethodsAnswer sample_search() {
  const fit::FitAnswer sample = sample_answer();
  fit::MethodsAnswer answer;
  answer.model = sample.model;
  answer.device = sample.device;
  fit::MethodRow row;
  row.flags = "--method fsdp2:4,pp:2";
  row.verdict = fit::Verdict::yes;
  row.question.stages = 2;
  row.stage = 1;
  row.peak_allocated = sample.memory.peak_allocated;
  row.breakdown = sample.memory.breakdown;
  row.device_used = sample.memory.device_used;
  answer.rows.push_back(row);
  answer.first_step = fit::StepOverTime{sample.memory.peak_at, sample.timeline};
  return answer;
}

std::vector<std::string> ids_of(const fit::MethodsAnswer& answer) {
  std::vector<std::string> ids;
  for (const Section& section : methods_sections(answer)) ids.push_back(section.id);
  return ids;
}

TEST(MethodsPage, TheStepOfTheFirstRowSaysWhoseItIs) {
  fit::MethodsAnswer answer = sample_search();
  EXPECT_EQ(ids_of(answer), (std::vector<std::string>{"answer", "step", "methods", "figures"}));
  const std::string step = methods_sections(answer)[1].body.markup();
  const auto says = [](const std::string& body, const char* words) {
    return body.find(words) != std::string::npos;
  };
  EXPECT_TRUE(says(step, "fsdp2:4,<wbr>pp:2")) << step.substr(0, 300);
  EXPECT_TRUE(says(step, "The one to begin with, on a device of stage 1 of 2"));
  answer.rows.front().question.stages = 1;
  answer.rows.front().verdict = fit::Verdict::no;
  const std::string alone = methods_sections(answer)[1].body.markup();
  EXPECT_FALSE(says(alone, "of stage"));
  EXPECT_TRUE(says(alone, "What misses least, "));
  answer.first_step.reset();
  EXPECT_EQ(ids_of(answer), (std::vector<std::string>{"answer", "methods", "figures"}));
}

TEST(MethodsJson, HasTheTimelineWhereThereIsOneAndWhichStageARowIsOf) {
  fit::MethodsAnswer answer = sample_search();
  EXPECT_NE(methods_json(answer).dump().find("\"timeline\":{"), std::string::npos);
  EXPECT_NE(methods_json(answer).dump().find("\"stage\":1"), std::string::npos);
  answer.first_step.reset();
  answer.rows.front().question.stages = 1;
  EXPECT_EQ(methods_json(answer).dump().find("\"timeline\""), std::string::npos);
  EXPECT_EQ(methods_json(answer).dump().find("\"stage\""), std::string::npos);
}

}  // namespace
}  // namespace headroom::report
