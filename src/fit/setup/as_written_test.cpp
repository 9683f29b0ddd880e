#include "fit/setup/as_written.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "fit/fit.h"
#include "fit/setup/setup_file.h"

namespace headroom::fit {
namespace {

FitQuestion question_of(std::initializer_list<std::pair<const char*, const char*>> flags) {
  FitQuestion question;
  question.model = "Qwen/Qwen3-0.6B";
  question.device = "a100-sxm-40gb";
  question.search = false;
  for (const auto& [name, words] : flags) EXPECT_TRUE(question.set(name, words)) << name << words;
  return question;
}

class AsWrittenFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }

  Emitted emit(const char* kind, const FitQuestion& asked, const FitQuestion& beside) {
    auto emitted = emit_setup(asked, {kind, file_});
    EXPECT_TRUE(emitted) << emitted.error().to_string();
    predict_written(asked, beside, *emitted);
    return *emitted;
  }

  std::string file_ =
      std::filesystem::path(testing::TempDir()) /
      ("as_written_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

// Its reduction in float32 is what makes it another setting.
TEST_F(AsWrittenFile, NeedsWhatItSaysOtherwise) {
  const FitQuestion asked =
      question_of({{"method", "fsdp2:4"}, {"shard-ends", "true"}, {"clip", "1"}, {"loss", "hf"}});
  const Emitted emitted = emit("torchtitan", asked, asked);
  ASSERT_TRUE(emitted.as_written);
  EXPECT_NE(std::ranges::find(emitted.as_written->instead, "--reduce-dtype fp32"),
            emitted.as_written->instead.end());
  FitQuestion same = asked;
  ASSERT_TRUE(same.set("reduce-dtype", "fp32"));
  const auto answered = answer(same);
  ASSERT_TRUE(answered);
  EXPECT_EQ(emitted.as_written->peak_allocated, answered->memory.peak_allocated);
  EXPECT_EQ(emitted.as_written->verdict, answered->verdict);
}

// What a search chose and the file has no word for is not there when it runs.
TEST_F(AsWrittenFile, LacksWhatASearchChose) {
  const FitQuestion given = question_of({{"batch", "4"}});
  const FitQuestion asked =
      question_of({{"batch", "4"}, {"method", "zero2:4"}, {"checkpointing", "selective"}});
  const Emitted emitted = emit("deepspeed", asked, given);
  ASSERT_TRUE(emitted.as_written);
  EXPECT_EQ(emitted.as_written->instead, std::vector<std::string>{"--checkpointing none"});
  const auto answered = answer(asked);
  ASSERT_TRUE(answered);
  EXPECT_GT(emitted.as_written->peak_allocated, answered->memory.peak_allocated);
}

TEST_F(AsWrittenFile, IsNothingNewWhereItSaysAll) {
  const FitQuestion asked = question_of({{"method", "zero2:4"}});
  const Emitted emitted = emit("deepspeed", asked, asked);
  EXPECT_FALSE(emitted.as_written);
  EXPECT_TRUE(emitted.notes.empty());
}

// Mixed precision beside ZeRO is the type that DeepSpeed's file says.
TEST_F(AsWrittenFile, SaysDeepSpeedsOwnMixedPrecision) {
  for (const char* method : {"zero2:4", "zero3:4"}) {
    const FitQuestion asked = question_of({{"method", method}, {"mixed-precision", "bf16"}});
    for (const char* kind : {"deepspeed", "accelerate"}) {
      const Emitted emitted = emit(kind, asked, asked);
      EXPECT_FALSE(emitted.as_written) << kind << " says " << emitted.as_written->instead.front();
      EXPECT_TRUE(emitted.notes.empty());
    }
  }
}

}  // namespace
}  // namespace headroom::fit
