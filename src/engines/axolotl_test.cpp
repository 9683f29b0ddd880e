#include "engines/axolotl.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "text/block_yaml.h"

namespace headroom::engines {
namespace {

Result<TrainingSetup> read(const std::string& yaml, const std::string& named = "{}") {
  HEADROOM_ASSIGN(const text::Json root, text::parse_block_yaml(yaml, "a.yaml"));
  EXPECT_TRUE(has_axolotl_arguments(root)) << yaml;
  return read_axolotl(text::JsonView(root, "a.yaml"),
                      [&](const std::string& name) { return text::parse_json(named, name); });
}

const std::string kModel =
    "base_model: a/b\ndatasets:\n  - path: c/d\n    type: alpaca\nattn_implementation: "
    "flash_attention_2\n";
const std::string kLora =
    kModel + "adapter: lora\nlora_r: 32\nlora_target_linear: true\ngradient_checkpointing: true\n";

bool has_note(const TrainingSetup& setup, std::string_view words) {
  return std::ranges::any_of(
      setup.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

TEST(Axolotl, WhatIsLeftOutHasItsDefaults) {
  const auto setup = read(kModel);
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->model, "a/b");
  EXPECT_EQ(setup->tuning, Tuning::full);
  EXPECT_EQ(setup->batch, 1);
  EXPECT_EQ(setup->sequence, 512);
  EXPECT_EQ(setup->clip, 1);
  EXPECT_EQ(setup->optimizer, "adamw_torch_fused");
  EXPECT_EQ(setup->checkpoints, false);
  EXPECT_EQ(setup->weights, Half::bf16);  // loaded so, and trained so
  EXPECT_EQ(setup->mixed_precision, Half::bf16);
  EXPECT_EQ(setup->finds_unused, false);
  EXPECT_TRUE(setup->notes.empty());
}

TEST(Axolotl, Adapters) {
  const auto setup = read(kLora + "lora_dropout: 0.05\n");
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->tuning, Tuning::lora);
  EXPECT_EQ(setup->lora_rank, 32);
  EXPECT_EQ(setup->lora_dropout, 0.05);
  EXPECT_EQ(setup->lora_targets, std::vector<std::string>{"all-linear"});
  EXPECT_FALSE(setup->adapters);
  EXPECT_EQ(read(kLora + "peft_autocast_adapter_dtype: false\n")->adapters, Half::bf16);
  EXPECT_EQ(read(kLora + "peft_use_dora: true\n")->tuning, Tuning::dora);
  const std::string quantized =
      kModel +
      "adapter: qlora\nlora_r: 16\nlora_target_modules:\n  - q_proj\n  - v_proj\n"
      "gradient_checkpointing: true\n";
  EXPECT_FALSE(read(quantized));  // as axolotl itself refuses it
  const auto four = read(quantized + "load_in_4bit: true\n");
  ASSERT_TRUE(four) << four.error().to_string();
  EXPECT_EQ(four->tuning, Tuning::qlora);
  EXPECT_EQ(four->prepared, Prepared::others);
  EXPECT_EQ(four->lora_targets, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_FALSE(read(kLora + "load_in_4bit: true\n"));
}

TEST(Axolotl, EightBits) {
  const auto eight = read(kLora + "load_in_8bit: true\n");
  ASSERT_TRUE(eight) << eight.error().to_string();
  EXPECT_EQ(eight->tuning, Tuning::lora_8bit);
  EXPECT_EQ(eight->prepared, Prepared::others);
  EXPECT_EQ(eight->is_reentrant, true);
  EXPECT_FALSE(has_note(*eight, "LoRA kernels"));  // which are not turned on beside them
  EXPECT_FALSE(read(kLora + "load_in_8bit: true\nlora_o_kernel: true\n"));
  EXPECT_FALSE(read(kLora + "load_in_8bit: true\npeft_use_dora: true\n"));
  EXPECT_EQ(read(kLora + "gradient_checkpointing_kwargs:\n  use_reentrant: false\n")->is_reentrant,
            false);
  const std::string plain =
      "base_model: a/b\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nload_in_8bit: true\n";
  EXPECT_EQ(read(plain + "bf16: false\n")->weights, Half::fp16);
  EXPECT_EQ(read(plain + "bf16: false\n")->mixed_precision, Half::none);
  EXPECT_EQ(read(plain + "bf16: true\n")->weights, Half::bf16);
  EXPECT_FALSE(read("base_model: a/b\nsequence_len: 64\nload_in_8bit: true\n"));
  EXPECT_FALSE(read(kModel + "adapter: qlora\nlora_r: 8\nlora_target_linear: true\n"
                             "load_in_4bit: true\nload_in_8bit: true\n"));
}

// On by themselves, and of every layer where nothing runs again.
TEST(Axolotl, LoraKernels) {
  EXPECT_TRUE(has_note(*read(kLora), "LoRA kernels, on by default"));
  EXPECT_FALSE(has_note(*read(kLora + "lora_mlp_kernel: false\n"), "LoRA kernels"));
  EXPECT_FALSE(has_note(*read(kLora + "trust_remote_code: true\n"), "LoRA kernels"));
  EXPECT_FALSE(has_note(*read(kLora + "fsdp_config:\n  offload_params: false\n"), "LoRA kernels"));
  const std::string keeps = kModel + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n";
  EXPECT_FALSE(read(keeps));
  EXPECT_TRUE(read(keeps + "lora_o_kernel: false\n"));
}

TEST(Axolotl, Types) {
  EXPECT_EQ(read(kModel + "bf16: full\n")->mixed_precision, Half::none);
  EXPECT_EQ(read(kModel + "bf16: full\n")->weights, Half::bf16);
  EXPECT_EQ(read(kModel + "fp16: true\n")->weights, Half::fp16);
  EXPECT_EQ(read(kModel + "fp16: true\n")->mixed_precision, Half::fp16);
  EXPECT_EQ(read(kModel + "bf16: false\n")->weights, Half::none);
  EXPECT_EQ(read(kModel + "bf16: false\nfloat16: true\n")->weights, Half::fp16);
  EXPECT_EQ(read(kModel + "bf16: false\nfloat16: true\n")->mixed_precision, Half::none);
}

// Without flash attention a whole model's ends and norms are float32, unless something forbids it.
TEST(Axolotl, EndsInFloat32AreRefused) {
  const std::string plain = "base_model: a/b\nsequence_len: 512\n";
  EXPECT_FALSE(read(plain));
  EXPECT_FALSE(read(plain + "sdp_attention: true\n"));
  EXPECT_TRUE(read(plain + "bf16: false\n"));
  EXPECT_TRUE(read(plain + "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n"));
  EXPECT_TRUE(read(plain + "deepspeed: ds.json\n", R"({"zero_optimization": {"stage": 2}})"));
  EXPECT_TRUE(read(plain + "plugins:\n- axolotl.integrations.cut_cross_entropy."
                           "CutCrossEntropyPlugin\n"));
  EXPECT_TRUE(read(plain + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
                           "gradient_checkpointing: true\n"));
}

TEST(Axolotl, LengthsAreFilledUp) {
  EXPECT_EQ(read(kModel + "sequence_len: 1000\n")->sequence, 1024);
  EXPECT_EQ(read(kModel + "sequence_len: 1000\npad_to_sequence_len: false\n")->sequence, 1000);
  EXPECT_EQ(read(kModel + "sequence_len: 1000\npad_to_multiple_of: 8\n")->sequence, 1000);
  const auto packed = read(kModel +
                           "sequence_len: 4096\nmicro_batch_size: 2\n"
                           "sample_packing: true\n");
  EXPECT_EQ(packed->sequence, 4096);
  EXPECT_EQ(packed->batch, 2);
  EXPECT_TRUE(has_note(*packed, "packed"));
  const std::string masked =
      "base_model: a/b\nbf16: false\nsample_packing: true\nsdp_attention: true\n";
  EXPECT_TRUE(read(masked));
  EXPECT_FALSE(read(masked + "sdpa_varlen: false\n"));  // a mask of all pairs
}

TEST(Axolotl, Plugins) {
  const std::string liger = kModel + "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n";
  const std::string kernels = "liger_rope: true\nliger_rms_norm: true\nliger_swiglu: true\n";
  const auto own = read(liger + kernels);
  EXPECT_EQ(own->has_liger, true);
  EXPECT_EQ(own->loss, SetupLoss::own);
  EXPECT_EQ(read(liger + kernels + "liger_fused_linear_cross_entropy: true\n")->loss,
            SetupLoss::fused_linear);
  const auto loss = read(liger + "liger_fused_linear_cross_entropy: true\n");
  EXPECT_FALSE(loss->has_liger);
  EXPECT_EQ(loss->loss, SetupLoss::fused_linear);
  EXPECT_FALSE(read(liger + "liger_rms_norm: true\n"));
  EXPECT_FALSE(read(kModel + kernels)->has_liger);  // words without their plugin
  const auto cut = read(kModel +
                        "plugins:\n- axolotl.integrations.cut_cross_entropy."
                        "CutCrossEntropyPlugin\n");
  EXPECT_EQ(cut->loss, SetupLoss::fused_linear);
  EXPECT_TRUE(has_note(*cut, "cut cross entropy"));
  EXPECT_FALSE(read(kModel + "plugins:\n- axolotl.integrations.spectrum.SpectrumPlugin\n"));
}

TEST(Axolotl, Fsdp) {
  const auto first = read(kModel +
                          "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n"
                          "  fsdp_offload_params: true\n");
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_EQ(first->sharing, Sharing::fsdp1);
  EXPECT_EQ(first->offloads_parameters, true);
  EXPECT_EQ(first->weights, Half::none);  // accelerate widens what is trained
  const auto second = read(kModel +
                           "fsdp_version: 2\ndp_shard_size: 4\ndp_replicate_size: 2\n"
                           "gradient_checkpointing: true\nfsdp_config:\n"
                           "  activation_checkpointing: false\n"
                           "  reshard_after_forward: true\n");
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_EQ(second->sharing, Sharing::fsdp2);
  EXPECT_EQ(second->weights, Half::bf16);  // axolotl's own fully_shard does not
  EXPECT_EQ(second->ranks, 4);
  EXPECT_EQ(second->replicas, 2);
  EXPECT_EQ(second->checkpoints, true);
  EXPECT_FALSE(read(kModel + "dp_replicate_size: 2\n"));
  EXPECT_FALSE(read(kModel + "fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"));
}

TEST(Axolotl, WhatIsNotModelledNamesItsPlace) {
  for (const char* key :
       {"rl", "gptq", "relora", "qat", "unfrozen_parameters", "torch_compile", "tiled_mlp",
        "activation_offloading", "fp8", "processor_type", "quantize_moe_experts"}) {
    const auto setup = read(kModel + key + ": true\n");
    ASSERT_FALSE(setup) << key;
    EXPECT_EQ(setup.error().where, std::string("a.yaml#/") + key);
    EXPECT_TRUE(read(kModel + key + ": false\n")) << key;
    EXPECT_TRUE(read(kModel + key + ":\n")) << key;
  }
  for (const char* words :
       {"gradient_checkpointing: offload\n", "tensor_parallel_size: 2\n",
        "context_parallel_size: 2\n", "experts_implementation: scattermoe\n",
        "model_type: AutoModelForSequenceClassification\n", "adapter: llama-adapter\n"}) {
    EXPECT_FALSE(read(kModel + words)) << words;
  }
  EXPECT_FALSE(read(kModel + "adapter: lora\nlora_r: 8\nlora_target_modules: 'model.*q_proj'\n"));
}

TEST(Axolotl, MembersThatNobodyLookedAtAreNoted) {
  const auto setup = read(kModel + "wandb_project: x\nsome_kernel: true\nother: false\n");
  ASSERT_TRUE(setup);
  EXPECT_TRUE(has_note(*setup, "memory: some_kernel"));
  EXPECT_FALSE(has_note(*setup, "wandb"));
  EXPECT_FALSE(has_note(*setup, "other"));
}

}  // namespace
}  // namespace headroom::engines
