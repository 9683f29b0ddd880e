// Answers about models that classify sequences.
#include <gtest/gtest.h>

#include <string>

#include "fit/fit.h"

namespace headroom::fit {
namespace {

FitQuestion classifying(const char* model) {
  FitQuestion question;
  question.model = model;
  question.device = "a100-sxm-80gb";
  question.batch = 8;
  question.seq = 512;
  question.search = false;
  EXPECT_TRUE(question.set("task", "sequence-classification"));
  return question;
}

// No logits of a vocabulary, and no head of one.
TEST(Classifier, AClassOfASequenceTakesNoLogitsOfAVocabulary) {
  FitQuestion question = classifying("meta-llama/Llama-3.2-1B");
  const auto classified = answer(question);
  ASSERT_TRUE(classified) << classified.error().to_string();
  ASSERT_TRUE(question.set("task", "own"));
  const auto predicted = answer(question);
  ASSERT_TRUE(predicted);
  // Of 8 x 512 tokens 128,256 classes each, in float32.
  constexpr int64_t kLogits = int64_t{8} * 512 * 128'256 * 4;
  EXPECT_GT(predicted->memory.peak_allocated.count - classified->memory.peak_allocated.count,
            kLogits);
  EXPECT_EQ(classified->parameter_count,
            predicted->parameter_count + 2 * 2048);  // its head is tied
  ASSERT_TRUE(question.set("task", "sequence-classification"));
  ASSERT_TRUE(question.set("labels", "5"));
  EXPECT_EQ(answer(question)->parameter_count, predicted->parameter_count + 5 * 2048);
}

TEST(Classifier, AdaptersTrainTheHeadThatClassifies) {
  FitQuestion question = classifying("google-bert/bert-base-uncased");
  ASSERT_TRUE(question.set("method", "lora"));
  const auto adapted = answer(question);
  ASSERT_TRUE(adapted) << adapted.error().to_string();
  constexpr int64_t kAdapters = 12 * 2 * 2 * 16 * 768;  // query and value of each layer
  EXPECT_EQ(adapted->trainable_count, kAdapters + 2 * 768 + 2);
}

TEST(Classifier, WhatHasNoClassifierIsRefused) {
  EXPECT_NE(answer(classifying("Salesforce/codegen-350M-mono")).error().message.find("no head"),
            std::string::npos);
  FitQuestion shared = classifying("meta-llama/Llama-3.2-1B");
  ASSERT_TRUE(shared.set("method", "fsdp2:2,cp:2"));
  EXPECT_FALSE(answer(shared));
}

}  // namespace
}  // namespace headroom::fit
