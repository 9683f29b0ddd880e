#include "fit/megatron/division.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fit/megatron/question.h"
#include "model/megatron.h"

namespace headroom::fit {
namespace {

engines::MegatronArguments small_model() {
  engines::MegatronArguments a;
  a.layers = 6;
  a.hidden = 256;
  a.heads = 8;
  a.query_groups = 4;
  a.kv_channels = 32;
  a.ffn = 512;
  a.sequence = 96;
  a.vocabulary = 1000;
  a.rotary = a.rms_norm = a.swiglu = true;
  a.linear_bias = false;
  a.type = "bf16";
  a.global_batch = 12;
  return a;
}

engines::MegatronArguments small_mixture() {
  engines::MegatronArguments a = small_model();
  a.experts = 4;
  a.experts_per_token = 2;
  a.expert_ffn = 512;
  a.grouped_experts = true;
  return a;
}

// Whether the engine takes it: as a file of these arguments would be read, each stage built.
bool is_taken(const engines::MegatronArguments& model, const MegatronDivision& d) {
  const auto question = megatron_question(FitQuestion(), divided(model, d), "model", d.gpus());
  if (!question || question->grad_accum < 1) return false;
  for (int64_t stage = 0; stage < d.stages; ++stage) {
    MegatronSetting setting = *question->megatron;
    setting.look_at(stage);
    setting.stage.micro_batch = d.micro_batch;
    setting.stage.sequence = model.sequence;
    if (!model::build_megatron_stage(setting.stage)) return false;
  }
  return true;
}

// Every combination of small numbers, of which those that are taken are those that are listed.
void expect_all_listed(const engines::MegatronArguments& model, int64_t gpus,
                       int64_t devices_per_node) {
  DivisionsAsked asked{.gpus = gpus, .devices_per_node = devices_per_node};
  asked.recomputation = CheckpointingKind::none;
  const std::vector<MegatronDivision> listed = megatron_divisions(model, asked);
  size_t taken = 0;
  for (MegatronDivision d; d.tensor <= gpus; ++d.tensor) {
    if (devices_per_node % d.tensor != 0) continue;
    for (d.stages = 1; d.tensor * d.stages <= gpus; ++d.stages) {
      for (d.context = 1; d.tensor * d.stages * d.context <= gpus; ++d.context) {
        if (gpus % (d.tensor * d.stages * d.context) != 0) continue;
        d.data = gpus / (d.tensor * d.stages * d.context);
        for (d.chunks = 1; d.chunks <= model.layers + 2; ++d.chunks) {
          for (d.micro_batch = 1; d.micro_batch <= 12; ++d.micro_batch) {
            for (d.expert = 1; d.expert <= (model.experts > 0 ? gpus : 1); ++d.expert) {
              d.expert_tensor = d.tensor;
              for (const bool ends : {false, true}) {
                d.ends_are_layers = ends;
                if (ends && (model.layers % d.stages == 0 || d.stages == 1)) continue;
                const bool is_listed = std::ranges::find(listed, d) != listed.end();
                EXPECT_EQ(is_listed, is_taken(model, d)) << flags_of(d);
                taken += is_listed ? 1 : 0;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(taken, 20U);
}

TEST(MegatronDivision, WhatIsTakenIsListed) { expect_all_listed(small_model(), 8, 8); }
TEST(MegatronDivision, TensorParallelRanksAreInOneMachine) {
  expect_all_listed(small_model(), 12, 2);
}
TEST(MegatronDivision, ExpertsAreSharedOut) { expect_all_listed(small_mixture(), 4, 4); }

TEST(MegatronDivision, WhatIsGivenIsNotVaried) {
  DivisionsAsked asked{.gpus = 4, .devices_per_node = 4};
  asked.micro_batch = 3;
  asked.recomputation = CheckpointingKind::full;
  const auto listed = megatron_divisions(small_model(), asked);
  ASSERT_FALSE(listed.empty());
  for (const MegatronDivision& d : listed) {
    EXPECT_EQ(d.micro_batch, 3);
    EXPECT_EQ(d.recomputation, CheckpointingKind::full);
    EXPECT_EQ(d.gpus(), 4);
  }
}

// Each of them, as Megatron-LM has it where nobody says the recipe.
TEST(MegatronDivision, ProductsInFp8AreLookedAtWhereTheyAreAsked) {
  DivisionsAsked asked{.gpus = 4, .devices_per_node = 4};
  const auto plain = megatron_divisions(small_model(), asked);
  asked.any_precision = true;
  const auto both = megatron_divisions(small_model(), asked);
  EXPECT_EQ(both.size(), 2 * plain.size());
  for (MegatronDivision d : plain) {
    EXPECT_TRUE(divided(small_model(), d).fp8_format.empty());
    d.fp8 = true;
    EXPECT_TRUE(std::ranges::find(both, d) != both.end()) << flags_of(d);
    const auto arguments = divided(small_model(), d);
    EXPECT_EQ(arguments.fp8_format, "hybrid");
    EXPECT_EQ(arguments.fp8_recipe, engines::MegatronArguments().fp8_recipe);
  }
}

TEST(MegatronDivision, WordsSayTheWhole) {
  for (const auto& [model, gpus] :
       {std::pair{small_model(), int64_t{8}}, std::pair{small_mixture(), int64_t{8}}}) {
    const DivisionsAsked asked{.gpus = gpus, .any_precision = true};
    for (MegatronDivision d : megatron_divisions(model, asked)) {
      const auto back = parse_division(division_words(d), gpus);
      ASSERT_TRUE(back) << division_words(d) << back.error().to_string();
      d.micro_batch = 1;
      d.recomputation = CheckpointingKind::none;
      EXPECT_EQ(*back, d) << division_words(d);
      EXPECT_EQ(*parse_division(division_words(d), std::nullopt), d) << division_words(d);
    }
  }
}

TEST(MegatronDivision, OtherWordsAreRefused) {
  for (const char* words : {"", "tp", "tp:0", "tp:-2", "tp:2,tp:2", "fsdp2:8", "distopt,distopt",
                            "tp:2,", "fp8,fp8", "pp:99999999", "tp:65536,pp:65536", "tp:2x"}) {
    EXPECT_FALSE(parse_division(words, std::nullopt)) << words;
  }
  EXPECT_FALSE(parse_division("tp:3", 8));
  EXPECT_FALSE(parse_division("tp:2,dp:2", 8));
  EXPECT_EQ(parse_division("tp:2,pp:2", 8)->data, 2);
}

}  // namespace
}  // namespace headroom::fit
