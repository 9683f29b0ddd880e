#include "fit/search/smallest.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fit/fit.h"

namespace headroom::fit {
namespace {

FitQuestion asked(const char* model) {
  FitQuestion question;
  question.model = model;
  question.batch = 1;
  question.seq = 512;
  return question;
}

// Whatever is less does not do it, by the answer of fit itself.
TEST(Smallest, OneLessDoesNotDoIt) {
  const auto answer = find_smallest(asked("meta-llama/Llama-2-7b-hf"), 8, "a100-sxm-40gb");
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_EQ(answer->rows.size(), 1U);
  const Hardware& least = answer->rows.front();
  EXPECT_EQ(least.row.verdict, Verdict::yes);
  ASSERT_GT(least.device.count, 1);
  FitQuestion half = asked("meta-llama/Llama-2-7b-hf");
  half.device = "a100-sxm-40gb";
  if (least.device.count == 2) {
    for (const char* recomputed : {"none", "selective", "full"}) {
      half.search = false;
      ASSERT_TRUE(half.set("checkpointing", recomputed));
      const auto alone = headroom::fit::answer(half);
      ASSERT_TRUE(alone);
      EXPECT_NE(alone->verdict, Verdict::yes) << recomputed;
    }
  } else {
    const auto fewer = choose_method(half, least.device.count / 2);
    ASSERT_TRUE(fewer);
    EXPECT_NE(fewer->verdict(), Verdict::yes);
  }
}

TEST(Smallest, TheLeastComesFirst) {
  const auto answer = find_smallest(asked("openai-community/gpt2"), 2, {});
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_GT(answer->rows.size(), 3U);
  EXPECT_TRUE(std::ranges::is_sorted(
      answer->rows, {}, [](const Hardware& hardware) { return hardware.offered().count; }));
  for (const Hardware& hardware : answer->rows) EXPECT_EQ(hardware.row.verdict, Verdict::yes);
}

// The others that do it are named.
TEST(Smallest, WhatOffersMostHasNoRow) {
  const auto answer = find_smallest(asked("openai-community/gpt2"), 1, {});
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->rows.size(), kMostHardware);
  EXPECT_GT(answer->larger.size(), 8U);
  for (const Hardware& hardware : answer->rows) {
    EXPECT_EQ(std::ranges::count(answer->larger, hardware.device.name), 0);
  }
  EXPECT_NE(std::ranges::find(answer->larger, "mi355x-288gb"), answer->larger.end());
}

// Devices go by, first to see whether they do it, then to be ranked.
TEST(Smallest, WhoWaitsIsTold) {
  FitQuestion question = asked("openai-community/gpt2");
  ASSERT_TRUE(question.set("checkpointing", "none"));
  SearchState last;
  const SearchProgress progress = [&](const SearchState& state) {
    EXPECT_LE(state.done, state.of);
    EXPECT_GE(state.predicted, last.predicted);
    last = state;
  };
  const auto answer = find_smallest(question, 1, {}, progress);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(last.of, static_cast<int64_t>(answer->rows.size()));
  EXPECT_EQ(last.done, last.of);
  EXPECT_GE(last.predicted, 2 * last.of);
}

// Where the precision is left open, the fastest that fits is of one of them, and says which.
TEST(Smallest, EveryPrecisionIsTried) {
  FitQuestion question = asked("facebook/opt-1.3b");
  ASSERT_TRUE(question.set("checkpointing", "none"));
  ASSERT_TRUE(question.set("mixed-precision", "any"));
  const auto answer = find_smallest(question, 1, "a100-sxm-40gb");
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_EQ(answer->rows.size(), 1U);
  EXPECT_EQ(answer->rows.front().row.flags, "--method full --dtype bf16");
  EXPECT_EQ(std::ranges::count(answer->notes, kPrecisionChanges), 1);
}

TEST(Smallest, WhatFitsNowhereIsAnAnswer) {
  const auto answer = find_smallest(asked("meta-llama/Llama-2-70b-hf"), 1, "rtx-4090");
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_TRUE(answer->rows.empty());
  EXPECT_EQ(answer->too_small.size(), 1U);
  EXPECT_GT(answer->parameter_count, 68'000'000'000);  // it is the same step all the same
  EXPECT_EQ(answer->seq, 512);
}

TEST(Smallest, WhatCannotBeAskedIsAnError) {
  EXPECT_FALSE(find_smallest(asked("no/such-model"), 1, "rtx-4090"));
  EXPECT_FALSE(find_smallest(asked("openai-community/gpt2"), 1, "no-such-device"));
}

TEST(Smallest, AGlobalBatchThatNoNumberOfDevicesDividesIsAnError) {
  FitQuestion question = asked("openai-community/gpt2");
  ASSERT_TRUE(question.set("batch", "2"));
  ASSERT_TRUE(question.set("global-batch", "3"));
  const auto answer = find_smallest(question, 8, "rtx-4090");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().where, "--global-batch");
  // Of one alone it is a multiple.
  ASSERT_TRUE(question.set("global-batch", "2"));
  EXPECT_TRUE(find_smallest(question, 8, "rtx-4090"));
}

// Too small is what was tried; what cannot be asked of a device is said.
TEST(Smallest, ADeviceThatRefusesIsNotTooSmall) {
  FitQuestion question = asked("openai-community/gpt2");
  ASSERT_TRUE(question.set("dtype", "fp16"));
  ASSERT_TRUE(question.set("attention", "flash2"));
  const auto answer = find_smallest(question, 1, {});
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(std::ranges::count(answer->too_small, "v100-sxm2-16gb"), 0);
  ASSERT_EQ(answer->notes.size(), 1U);
  EXPECT_NE(answer->notes.front().find("v100-sxm2-16gb"), std::string::npos);
  EXPECT_NE(answer->notes.front().find("FlashAttention-2"), std::string::npos);
}

}  // namespace
}  // namespace headroom::fit
