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
  // The allocator that fit replays is the one that pack compares with.
  ASSERT_TRUE(answer->pack && answer->pack->loss);
  EXPECT_EQ(answer->pack->loss->reserved, answer->fit.memory.peak_reserved);
  EXPECT_LE(answer->pack->plan.size, answer->pack->loss->reserved);
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
  EXPECT_TRUE(answer->pack);
  ASSERT_EQ(answer->missing.size(), 1U);
  EXPECT_EQ(answer->missing.front().part, "batch");
  EXPECT_FALSE(answer->missing.front().why.empty());
}

}  // namespace
}  // namespace headroom::study
