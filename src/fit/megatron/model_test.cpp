#include "fit/megatron/model.h"

#include <gtest/gtest.h>

#include <map>

#include "engines/megatron_script.h"
#include "fit/megatron/question.h"
#include "model/builtin.h"

namespace headroom::fit {
namespace {

FitQuestion question_of(const std::string& model, int64_t seq) {
  FitQuestion question;
  question.model = model;
  question.device = "h100-sxm-80gb";
  question.seq = seq;
  return question;
}

Result<MegatronDescription> described(const std::string& config, const FitQuestion& question) {
  const auto json = text::parse_json(config, "config.json");
  return json ? describe_for_megatron({*json, "config.json"}, question) : json.error();
}

// A latent model whose layers all are dense: the one kind that Megatron-LM's modelled arguments
// say.
const std::string kLatent = R"({"model_type": "deepseek_v3", "vocab_size": 1000, "hidden_size": 256,
  "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512,
  "moe_intermediate_size": 64, "n_routed_experts": 16, "n_group": 2, "topk_group": 1,
  "num_experts_per_tok": 2, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 32,
  "qk_rope_head_dim": 16, "v_head_dim": 32, "first_k_dense_replace": 4})";

// The parameters that were published, not those that our own graph of transformers' has; the
// vocabulary is padded to 128 times the tensor parallel ranks, once where embeddings are tied.
TEST(MegatronModel, ParametersAreThosePublishedAndThePadding) {
  struct Known {
    const char* name;
    int64_t seq, tensor;
  };
  for (const Known& known :
       {Known{"openai-community/gpt2", 1024, 1}, Known{"openai-community/gpt2-xl", 512, 5},
        Known{"huggyllama/llama-13b", 2048, 8}, Known{"meta-llama/Llama-3.1-8B", 8192, 2},
        Known{"meta-llama/Llama-3.2-1B", 8192, 4}, Known{"meta-llama/Llama-3.1-405B", 8192, 8},
        Known{"mistralai/Mistral-7B-v0.1", 4096, 4},
        Known{"mistralai/Mistral-Nemo-Base-2407", 1, 1},
        Known{"mistralai/Mixtral-8x7B-v0.1", 8192, 2}, Known{"Qwen/Qwen2-0.5B", 1024, 2},
        Known{"Qwen/Qwen2.5-72B", 8192, 8}, Known{"Qwen/Qwen3-8B", 8192, 2},
        Known{"Qwen/Qwen3-30B-A3B", 8192, 4}, Known{"Qwen/Qwen1.5-MoE-A2.7B", 8192, 4},
        Known{"microsoft/phi-4", 8192, 1}, Known{"bigcode/starcoder2-7b", 4096, 2}}) {
    const auto builtin = model::find_builtin(known.name);
    ASSERT_TRUE(builtin && (*builtin)->parameters) << known.name;
    FitQuestion question = question_of(known.name, known.seq);
    auto model = describe_for_megatron({(*builtin)->config, known.name}, question);
    ASSERT_TRUE(model) << known.name << ": " << model.error().to_string();
    engines::MegatronArguments& arguments = model->arguments;
    arguments.tensor_ranks = known.tensor;
    const auto asked = megatron_question(question, arguments, known.name, known.tensor);
    ASSERT_TRUE(asked) << known.name;
    const int64_t multiple = 128 * known.tensor;
    const int64_t padded = (*arguments.vocabulary + multiple - 1) / multiple * multiple;
    const int64_t padding =
        (padded - *arguments.vocabulary) * arguments.hidden * (arguments.tied ? 1 : 2);
    const auto count = megatron_parameters(*asked->megatron);
    ASSERT_TRUE(count) << count.error().to_string();
    EXPECT_EQ(*count, *(*builtin)->parameters + padding) << known.name;
  }
}

TEST(MegatronModel, LatentAttentionIsTakenWhereLayersAreDense) {
  const auto model = described(kLatent, question_of("latent", 512));
  ASSERT_TRUE(model) << model.error().to_string();
  EXPECT_EQ(model->arguments.kv_lora_rank, 32);
  EXPECT_EQ(model->arguments.q_lora_rank, 48);
  EXPECT_TRUE(model->arguments.qk_layernorm);
}

TEST(MegatronModel, WhatIsNotModelledIsNamed) {
  const std::map<std::string, std::string> reasons{
      {"deepseek-ai/DeepSeek-V3", "--moe-layer-freq"},
      {"google/gemma-2-2b", "'gemma2' is not modelled"},
      {"microsoft/Phi-3-mini-4k-instruct", "--seq 2047 or less"},
      {"mistralai/Mistral-7B-v0.1", "--seq 4096 or less"},
      {"cerebras/Cerebras-GPT-111M", "the approximation by tanh"}};
  for (const auto& [name, reason] : reasons) {
    const auto builtin = model::find_builtin(name);
    ASSERT_TRUE(builtin) << name;
    const auto model = describe_for_megatron({(*builtin)->config, name}, question_of(name, 8192));
    ASSERT_FALSE(model) << name;
    EXPECT_NE(model.error().message.find(reason), std::string::npos)
        << name << ": " << model.error().message;
  }
}

// A script of it is read back as the same arguments, experts that every token goes to with it.
TEST(MegatronModel, SharedExpertsAndPartialRotationReadBack) {
  const auto builtin = model::find_builtin("Qwen/Qwen1.5-MoE-A2.7B");
  ASSERT_TRUE(builtin);
  const auto shared = describe_for_megatron({(*builtin)->config, "moe"}, question_of("moe", 2048));
  ASSERT_TRUE(shared) << shared.error().to_string();
  EXPECT_EQ(shared->arguments.shared_expert_ffn, 5632);
  EXPECT_TRUE(shared->arguments.shared_expert_gate && shared->arguments.qkv_bias);
  const auto partial = described(
      R"({"model_type": "phi3", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 512, "partial_rotary_factor": 0.75,
          "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})",
      question_of("partial", 512));
  ASSERT_TRUE(partial) << partial.error().to_string();
  EXPECT_EQ(partial->arguments.rotary_percent, 0.75);
  for (const engines::MegatronArguments& written : {shared->arguments, partial->arguments}) {
    const auto read = engines::read_megatron_arguments(engines::megatron_script(written), "run.sh");
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(read->shared_expert_ffn, written.shared_expert_ffn);
    EXPECT_EQ(read->shared_expert_gate, written.shared_expert_gate);
    EXPECT_EQ(read->rotary_percent, written.rotary_percent);
    EXPECT_EQ(read->expert_ffn, written.expert_ffn);
  }
}

// Biases of attention alone are no argument of Megatron-LM's.
TEST(MegatronModel, HalfOfABiasIsRefused) {
  const std::string config =
      R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 512, "attention_bias": true)";
  const FitQuestion question = question_of("half", 512);
  EXPECT_FALSE(described(config + "}", question));
  const auto whole = described(config + R"(, "mlp_bias": true})", question);
  ASSERT_TRUE(whole) << whole.error().to_string();
  EXPECT_TRUE(whole->arguments.linear_bias);
}

// What decides numbers is handed on; Megatron-LM's base is a whole number.
TEST(MegatronModel, TheFileStartsTheSameModel) {
  const auto model = described(
      R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 512, "rope_theta": 500000.0,
          "rms_norm_eps": 1e-05, "max_position_embeddings": 256})",
      question_of("llama", 512));
  ASSERT_TRUE(model) << model.error().to_string();
  const std::vector<engines::OtherArgument> others{{"norm-epsilon", {"1e-05"}, true},
                                                   {"rotary-base", {"500000"}, true}};
  EXPECT_EQ(model->arguments.others, others);
  // Megatron-LM refuses a sequence beyond the positions; rotated ones have no table.
  EXPECT_EQ(model->arguments.longest, 512);
  ASSERT_EQ(model->warnings.size(), 1U);
  EXPECT_NE(model->warnings[0].find("longer than the model's 256 positions"), std::string::npos);
}

}  // namespace
}  // namespace headroom::fit
