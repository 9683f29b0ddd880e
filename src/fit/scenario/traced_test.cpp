#include "fit/scenario/traced.h"

#include <gtest/gtest.h>

namespace headroom::fit {
namespace {

FitQuestion traced_question() {
  FitQuestion question;
  question.model = "train.py:build";
  question.device = "a100-sxm-80gb";
  return question;
}

// What the function decides is refused before anything runs.
TEST(ScenarioTraced, RefusesWhatIsTheFunctionsBusiness) {
  const std::pair<const char*, const char*> settings[] = {
      {"method", "lora"},      {"kernels", "liger"},   {"loss", "fused-linear"},
      {"vocab", "32000"},      {"freeze", "mlp"},      {"assume", "llama"},
      {"attention", "flash2"}, {"attention", "eager"}, {"accelerate", "true"},
      {"keep-outputs", "true"}};
  for (const auto& [name, words] : settings) {
    FitQuestion question = traced_question();
    ASSERT_TRUE(question.set(name, words)) << name;
    const auto scenario = resolve(question);
    ASSERT_FALSE(scenario) << name;
    EXPECT_EQ(scenario.error().code, ErrorCode::usage);
    EXPECT_EQ(scenario.error().where, std::string("--") + name);
    EXPECT_FALSE(scenario.error().hint.empty());
  }
}

TEST(ScenarioTraced, SearchesSizesOnlyWhereAskedAndTaken) {
  Scenario scenario;
  EXPECT_TRUE(searchable_sizes(scenario).batch);
  TracedModel traced;
  traced.trace.batch = 4;
  scenario.traced = std::make_shared<TracedModel>(traced);
  EXPECT_FALSE(searchable_sizes(scenario).batch);
  ASSERT_TRUE(scenario.question.set("search", "true"));
  EXPECT_TRUE(searchable_sizes(scenario).batch);
  EXPECT_FALSE(searchable_sizes(scenario).sequence);
}

}  // namespace
}  // namespace headroom::fit
