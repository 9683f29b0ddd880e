#include "ops/predicted.h"

#include <gtest/gtest.h>

#include "device/catalogue.h"

namespace headroom::ops {
namespace {

// Of the shape of Llama 2 7B, with four layers.
constexpr std::string_view kConfig =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 4,
  "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
  "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
  "tie_word_embeddings": false})";

PredictedRun predicted(int64_t batch, int64_t seq) {
  const text::Json json = *text::parse_json(kConfig, "config.json");
  PredictedQuestion question;
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  question.batch = batch;
  question.seq = seq;
  const timing::TimingModel model = timing::TimingModel::built_in();
  const auto run = predict_decode(text::JsonView(json, "config.json"), question, model);
  EXPECT_TRUE(run) << run.error().to_string();
  return run ? *run : PredictedRun{};
}

const PredictedPart& part(const PredictedRun& run, std::string_view name) {
  for (const PredictedPart& one : run.parts) {
    if (one.name == name) return one;
  }
  ADD_FAILURE() << name;
  return run.parts.front();
}

TEST(Predicted, PartsSumAndHaveIntervals) {
  const PredictedRun run = predicted(8, 1024);
  ASSERT_EQ(run.parts.size(), 4U);
  double pct = 0;
  for (const PredictedPart& one : run.parts) {
    EXPECT_GT(one.ms, 0) << one.name;
    EXPECT_LE(one.ms_low, one.ms) << one.name;
    EXPECT_GE(one.ms_high, one.ms) << one.name;
    EXPECT_GE(one.speedup_2x, 1) << one.name;
    EXPECT_LE(one.speedup_2x_low, one.speedup_2x_high) << one.name;
    EXPECT_FALSE(one.provenance.empty()) << one.name;
    pct += one.pct;
  }
  EXPECT_NEAR(pct, 100, 1e-9);
  EXPECT_LT(run.step_ms_low, run.step_ms);
  EXPECT_GT(run.step_ms_high, run.step_ms);
  EXPECT_GE(run.parts[0].ms, run.parts[1].ms);
}

// More tokens in the cache are more attention; products do not know of them.
TEST(Predicted, AttentionGrowsWithTheCache) {
  const PredictedRun few = predicted(8, 256);
  const PredictedRun many = predicted(8, 4096);
  EXPECT_GT(part(many, "attention").ms, 2 * part(few, "attention").ms);
  EXPECT_NEAR(part(many, "gemm").ms, part(few, "gemm").ms, 1e-9);
}

}  // namespace
}  // namespace headroom::ops
