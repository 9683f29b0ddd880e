#include "fit/methods.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fit/fit.h"

namespace headroom::fit {
namespace {

FitQuestion small_question() {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.batch = 2;
  question.seq = 256;
  return question;
}

TEST(Methods, EveryDivisorIsAGroupOnce) {
  EXPECT_EQ(divisions_among(8),
            (std::vector<std::string>{"ddp:8", "zero1:8", "zero2:8", "fsdp2:8",
                                      "fsdp2:4,replicate:2", "fsdp2:2,replicate:4"}));
  EXPECT_EQ(divisions_among(2),
            (std::vector<std::string>{"ddp:2", "zero1:2", "zero2:2", "fsdp2:2"}));
  EXPECT_EQ(divisions_among(7).size(), 4U);
}

// Each row is what the question with its flags answers.
TEST(Methods, RowsAreAnswers) {
  const auto chosen = choose_method(small_question(), 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(chosen->rows.size(), 15U);
  EXPECT_EQ(chosen->device.count, 4);
  for (const MethodRow& row : chosen->rows) {
    FitQuestion question = small_question();
    const std::string words = row.flags.substr(std::string("--method ").size());
    const size_t end = words.find(' ');
    ASSERT_TRUE(question.set("method", words.substr(0, end)));
    if (end != std::string::npos) {
      ASSERT_TRUE(question.set("checkpointing", words.substr(words.rfind(' ') + 1)));
    }
    const auto alone = answer(question);
    ASSERT_TRUE(alone) << row.flags;
    EXPECT_EQ(row.verdict, alone->verdict) << row.flags;
    EXPECT_EQ(row.peak_reserved, alone->memory.peak_reserved) << row.flags;
    EXPECT_EQ(row.device_used.high, alone->memory.device_used.high) << row.flags;
    EXPECT_EQ(row.largest_batch->value, alone->largest_batch->value) << row.flags;
  }
}

TEST(Methods, TheFirstRecomputesNothingAndSendsLeastOfThoseThatFit) {
  const auto chosen = choose_method(small_question(), 4);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->rows.front().verdict, Verdict::yes);
  EXPECT_EQ(chosen->rows.front().flags.find("--checkpointing"), std::string::npos);
  const auto is_plain = [](const MethodRow& row) {
    return row.flags.find("--checkpointing") == std::string::npos;
  };
  for (const MethodRow& row : chosen->rows) {
    if (!is_plain(row)) continue;
    EXPECT_GE(row.sent, chosen->rows.front().sent) << row.flags;
  }
}

TEST(Methods, WhereOnlyOneKindFitsItIsThat) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-2-7b-hf";
  question.device = "a100-sxm-40gb";
  question.batch = 1;
  const auto chosen = choose_method(question, 8);
  ASSERT_TRUE(chosen);
  const auto row_of = [&](const std::string& flags) {
    return *std::ranges::find(chosen->rows, flags, &MethodRow::flags);
  };
  EXPECT_EQ(row_of("--method ddp:8").verdict, Verdict::no);
  EXPECT_EQ(row_of("--method fsdp2:8").verdict, Verdict::yes);
  EXPECT_EQ(chosen->rows.front().verdict, Verdict::yes);
  EXPECT_NE(chosen->rows.back().verdict, Verdict::yes);
}

// A decoder's biases pass through units that nothing flows back from.
TEST(Methods, AnEncoderAndADecoderCanBeDivided) {
  FitQuestion question = small_question();
  question.model = "google-t5/t5-small";
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  for (const MethodRow& row : chosen->rows) EXPECT_EQ(row.verdict, Verdict::yes) << row.flags;
}

TEST(Methods, AnImageHasNoSequence) {
  FitQuestion question = small_question();
  question.model = "google/vit-base-patch16-224";
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_FALSE(chosen->seq);
  EXPECT_EQ(chosen->verdict(), Verdict::yes);
}

TEST(Methods, WhatIsGivenStays) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("checkpointing", "full"));
  ASSERT_TRUE(question.set("method", "lora"));
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen);
  ASSERT_EQ(chosen->rows.size(), 4U);
  for (const MethodRow& row : chosen->rows) {
    EXPECT_TRUE(row.flags.starts_with("--method lora,")) << row.flags;
    EXPECT_EQ(row.flags.find("--checkpointing"), std::string::npos);
  }
}

// ZeRO (arXiv 1910.02054), section 7.2: data parallel and the first two stages send twice the
// parameters, the third three times; all less a ring's n-th.
TEST(Methods, WhatIsSent) {
  FitQuestion question;
  constexpr int64_t kParameters = 1'000'000;
  const auto sent = [&](const char* method) {
    EXPECT_TRUE(question.set("method", method));
    return bytes_sent(question, kParameters, kParameters).count;
  };
  EXPECT_EQ(sent("ddp:4"), 2 * 2 * kParameters * 3 / 4);
  EXPECT_EQ(sent("zero1:4"), 2 * 2 * kParameters * 3 / 4);
  EXPECT_EQ(sent("zero2:4"), 2 * 2 * kParameters * 3 / 4);
  EXPECT_EQ(sent("fsdp2:4"), 3 * 2 * kParameters * 3 / 4);
  EXPECT_EQ(sent("fsdp2:2,replicate:2"), 3 * 2 * kParameters / 2 + 2 * 2 * kParameters / 2 / 2);
  EXPECT_EQ(sent("full"), 0);
  question.grad_accum = 3;
  EXPECT_EQ(sent("ddp:4"), 2 * 2 * kParameters * 3 / 4);
  EXPECT_EQ(sent("zero2:4"), (3 + 1) * 2 * kParameters * 3 / 4);
  EXPECT_EQ(sent("fsdp2:4"), 3 * 3 * 2 * kParameters * 3 / 4);
}

}  // namespace
}  // namespace headroom::fit
