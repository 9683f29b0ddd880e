// Rows of a file of measurements that say they are Megatron-LM's: what they may ask for.
#include "fit/megatron/row.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "fit/measured/measured_row.h"

namespace headroom::fit {
namespace {

using Cells = std::map<std::string, std::string>;

// A small GPT on four ranks: two tensor parallel, two stages.
Cells small_gpt() {
  return {{"framework", "Megatron-LM"},
          {"model", "gpt"},
          {"gpu", "h100-sxm-80gb"},
          {"layers", "4"},
          {"hidden", "256"},
          {"heads", "8"},
          {"kv_heads", "8"},
          {"head_dim", "32"},
          {"ffn", "1024"},
          {"padded_vocab", "1024"},
          {"norm", "LayerNorm"},
          {"activation", "gelu"},
          {"weights_dtype", "bf16"},
          {"position_embedding", "rope"},
          {"tp", "2"},
          {"pp", "2"},
          {"vpp", "1"},
          {"cp", "1"},
          {"dp", "1"},
          {"world_size", "4"},
          {"last_stage_layers", "2"},
          {"num_micro_batches", "8"},
          {"micro_batch", "1"},
          {"seq_len", "512"}};
}

Result<FitQuestion> asked(Cells cells, const Cells& others) {
  for (const auto& [column, word] : others) cells[column] = word;
  std::string head;
  std::string row;
  for (const auto& [column, word] : cells) {
    head += (head.empty() ? "" : ",") + column;
    row += (row.empty() ? "" : ",") + word;
  }
  const auto table = text::read_csv(head + "\n" + row + "\n", "rows.csv");
  EXPECT_TRUE(table);
  return question_of(*table, 0);
}

std::string reason(const Cells& others) {
  const auto question = asked(small_gpt(), others);
  return question ? "none" : question.error().message;
}

TEST(MegatronRow, IsARankOfItsLastStage) {
  const auto question = asked(small_gpt(), {});
  ASSERT_TRUE(question) << question.error().to_string();
  EXPECT_EQ(question->ranks, 4);
  EXPECT_EQ(question->megatron->stage.rank.stage, 1);
  EXPECT_EQ(question->megatron->stage.rank.layers(), 2);
}

TEST(MegatronRow, RunsNoCode) {
  EXPECT_NE(reason({{"model", "gpt.py:build"}}).find("no code"), std::string::npos);
}

// The GPUs of a stage decide how far the next one is.
TEST(MegatronRow, AllRanksAreThere) {
  for (const char* world : {"1", "2", "8", "16777216"}) {
    EXPECT_NE(reason({{"world_size", world}}).find("world_size"), std::string::npos) << world;
  }
  EXPECT_NE(reason({{"dp", "16777216"}, {"cp", "16777216"}}).find("world_size"), std::string::npos);
  EXPECT_NE(reason({{"dp", "65536"}, {"world_size", "262144"}}).find("world_size"),
            std::string::npos);
}

TEST(MegatronRow, PassesAndChunksAreBounded) {
  constexpr const char* kMost = "16777216";
  EXPECT_NE(reason({{"vpp", kMost}, {"last_stage_layers", kMost}}).find("gone through"),
            std::string::npos);
  EXPECT_NE(reason({{"pp", "4096"},
                    {"vpp", "1024"},
                    {"last_stage_layers", "1024"},
                    {"num_micro_batches", "12288"},
                    {"world_size", "8192"}})
                .find("gone through"),
            std::string::npos);
}

// What a test's script says and no column does is known by the test's name.
TEST(MegatronRow, NamesSayWhatColumnsDoNot) {
  const auto model_of = [](const std::string& name) {
    const auto question =
        asked(small_gpt(), {{"url", "x/test_cases/gpt/" + name + "/golden.json"}});
    EXPECT_TRUE(question) << name;
    return question ? question->megatron->stage.model : model::MegatronModel();
  };
  EXPECT_FALSE(model_of("gpt3_rope_embeddings").plain_rotary);
  EXPECT_TRUE(model_of("gpt3_rope_embeddings_interleaved_no_fusion").plain_rotary);
  EXPECT_TRUE(model_of("gpt3_rope_embeddings_interleaved_no_fusion").interleaved_rotary);
  EXPECT_TRUE(model_of("gpt3_mcore_tp2").fused_softmax);
  EXPECT_FALSE(model_of("gpt3_mcore_tp2_uninstall_te").fused_softmax);
  for (const char* name : {"gpt3_tp2_gdn", "gpt3_tp2_pp2_dsa", "gpt3_cp4_a2a_p2p_x"}) {
    EXPECT_NE(reason({{"url", name}}).find("is not modelled"), std::string::npos) << name;
  }
}

TEST(MegatronRow, NormsOfHeadsAreTheirOwnOrOfLatentVectors) {
  const auto plain = asked(small_gpt(), {{"norm", "RMSNorm +qk_norm"}, {"mla", "none"}});
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_TRUE(plain->megatron->stage.model.head_norms);
  EXPECT_FALSE(plain->megatron->stage.model.latent.norms);
  const auto latent = asked(small_gpt(), {{"norm", "RMSNorm +qk_norm"},
                                          {"mla", "q_lora=64 kv_lora=32 qk=16 rope=8 v=16"}});
  ASSERT_TRUE(latent) << latent.error().to_string();
  EXPECT_FALSE(latent->megatron->stage.model.head_norms);
  EXPECT_TRUE(latent->megatron->stage.model.latent.norms);
}

// Where the loss counts as a layer, the last chunk has one layer less.
TEST(MegatronRow, TheLastChunkMayHaveOneLayerLess) {
  const auto chunks = [](const char* layers) {
    const auto question =
        asked(small_gpt(), {{"vpp", "2"}, {"last_stage_layers", layers}, {"layers", "6"}});
    return question ? question->megatron->stage.rank.chunk_layers : std::vector<int64_t>();
  };
  EXPECT_EQ(chunks("4"), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(chunks("1"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(chunks("3"), (std::vector<int64_t>{2, 1}));
}

TEST(MegatronRow, ItsOwnModulesAreLocal) {
  const auto local = asked(small_gpt(), {{"transformer_impl", "local"}});
  ASSERT_TRUE(local) << local.error().to_string();
  EXPECT_TRUE(local->megatron->stage.model.local);
  const auto bert = asked(small_gpt(), {{"model", "bert: layers=4"}, {"url", "bert_local_spec"}});
  ASSERT_TRUE(bert) << bert.error().to_string();
  EXPECT_TRUE(bert->megatron->stage.model.bert);
  EXPECT_TRUE(bert->megatron->stage.model.local);
}

TEST(MegatronRow, Fp8IsAFormatAndARecipe) {
  for (const auto& [words, recipe] : {std::pair{"none", op::Fp8Recipe::none},
                                      std::pair{"hybrid/tensorwise", op::Fp8Recipe::tensorwise},
                                      std::pair{"e4m3/delayed", op::Fp8Recipe::delayed}}) {
    const auto question = asked(small_gpt(), {{"fp8", words}});
    ASSERT_TRUE(question) << question.error().to_string();
    EXPECT_EQ(question->megatron->stage.model.fp8.recipe, recipe) << words;
  }
  for (const char* words : {"e4m3/tensorwise param_gather", "hybrid/", "fp4 e2m1/nvfp4",
                            "e4m3/mxfp8 param_gather first_last_bf16"}) {
    EXPECT_EQ(reason({{"fp8", words}}),
              std::string("Megatron-LM with fp8 '") + words + "' is not modelled");
  }
}

// Words that nobody read a source for are refused, not taken for the usual one.
TEST(MegatronRow, WordsThatAreNotKnownAreRefused) {
  for (const auto& [column, known, unknown] :
       {std::tuple{"transformer_impl", "transformer_engine", "inference_optimized"},
        std::tuple{"loss_fusion", "native", "te"}, std::tuple{"loss_fusion", "none", "linear"}}) {
    EXPECT_EQ(reason({{column, known}}), "none") << known;
    EXPECT_NE(reason({{column, unknown}}).find(unknown), std::string::npos) << unknown;
  }
  EXPECT_EQ(reason({{"shared_expert", "none"}}), "none");
  EXPECT_NE(reason({{"shared_expert", "1024"}}).find("shared_expert"), std::string::npos);
}

// That test's script says 5; no column does.
TEST(MegatronRow, AGroupOfMicroBatchesIsTheScripts) {
  const Cells overlapped{{"url", "gpt3_mcore_te_tp1_pp4_vp1_tunable_overlap"},
                         {"vpp", "2"},
                         {"num_micro_batches", "10"}};
  const auto question = asked(small_gpt(), overlapped);
  ASSERT_TRUE(question) << question.error().to_string();
  EXPECT_EQ(question->megatron->stage.rank.group, 5);
  Cells odd = overlapped;
  odd["num_micro_batches"] = "8";
  EXPECT_NE(reason(odd).find("multiple of 5"), std::string::npos);
}

}  // namespace
}  // namespace headroom::fit
