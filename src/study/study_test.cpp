#include "study/study.h"

#include <gtest/gtest.h>

namespace headroom::study {
namespace {

TEST(Study, EveryPartOfACausalModel) {
  fit::FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.search = false;
  const auto answer = study(question);
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_TRUE(answer->batch);
  EXPECT_TRUE(answer->batch->advice.batch);
  EXPECT_TRUE(answer->missing.empty());
}

TEST(Study, WhereAPartHasNoAnswerTheOthersStand) {
  fit::FitQuestion question;
  question.model = "google-bert/bert-base-uncased";
  question.device = "a100-sxm-80gb";
  question.seq = 128;
  question.search = false;
  const auto answer = study(question);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_FALSE(answer->batch);
  ASSERT_EQ(answer->missing.size(), 1U);
  EXPECT_EQ(answer->missing.front().part, "batch");
  EXPECT_FALSE(answer->missing.front().why.empty());
}

}  // namespace
}  // namespace headroom::study
