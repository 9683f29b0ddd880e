#include "fit/scenario/zero.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fit/fit.h"

namespace headroom::fit {
namespace {

FitQuestion mistral(int64_t batch, int64_t seq) {
  FitQuestion question;
  question.model = "mistralai/Mistral-7B-v0.1";
  question.device = "a100-sxm-80gb";
  question.batch = batch;
  question.seq = seq;
  question.search = false;
  question.checkpointing.kind = CheckpointingKind::full;
  return question;
}

// accelerate's mixed_precision beside DeepSpeed is DeepSpeed's "bf16", whatever the weights were
// loaded in.
TEST(ZeroScenario, MixedPrecisionBesideZeroIsDeepSpeedsOwn) {
  for (const char* method : {"zero1:8", "zero2:8", "zero3:8", "lora,zero2:8"}) {
    for (const char* type : {"bf16", "fp16"}) {
      FitQuestion held = mistral(2, 1024);
      ASSERT_TRUE(held.set("method", method));
      FitQuestion mixed = held;
      ASSERT_TRUE(held.set("dtype", type));
      ASSERT_TRUE(mixed.set("mixed-precision", type));
      const auto expected = answer(held);
      ASSERT_TRUE(expected) << expected.error().to_string();
      for (const char* loaded : {"", "fp32", "bf16"}) {
        FitQuestion asked = mixed;
        if (*loaded != 0) {
          ASSERT_TRUE(asked.set("dtype", loaded));
        }
        const auto answered = answer(asked);
        ASSERT_TRUE(answered) << answered.error().to_string();
        EXPECT_EQ(answered->memory.peak_allocated, expected->memory.peak_allocated) << method;
        EXPECT_EQ(answered->memory.breakdown.bytes, expected->memory.breakdown.bytes) << method;
        EXPECT_DOUBLE_EQ(answered->time->step_seconds.expected,
                         expected->time->step_seconds.expected);
        EXPECT_EQ(setting_of(answered->settings, "dtype"), type);
        EXPECT_EQ(setting_of(answered->settings, "mixed-precision"), type);
        EXPECT_EQ(std::ranges::count(answered->notes, kDeepSpeedsHalf), 1);
      }
      EXPECT_EQ(std::ranges::count(expected->notes, kDeepSpeedsHalf), 0);
    }
  }
}

// Products with weights of four bits are in what --dtype says, all else in DeepSpeed's type.
TEST(ZeroScenario, BesideFourBitsDeepSpeedsTypeIsTheWeights) {
  FitQuestion question = mistral(1, 512);
  ASSERT_TRUE(question.set("method", "qlora,zero2:8"));
  const auto held = answer(question);
  ASSERT_TRUE(question.set("mixed-precision", "bf16"));
  const auto mixed = answer(question);
  ASSERT_TRUE(held && mixed) << mixed.error().to_string();
  EXPECT_EQ(held->memory.peak_allocated, mixed->memory.peak_allocated);
  ASSERT_TRUE(question.set("dtype", "fp16"));
  const auto refused = answer(question);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "--dtype");
}

}  // namespace
}  // namespace headroom::fit
