#include "engines/llama_factory.h"

#include <gtest/gtest.h>

#include "text/block_yaml.h"

namespace headroom::engines {
namespace {

Result<TrainingSetup> read(const std::string& yaml, const std::string& named = "{}") {
  HEADROOM_ASSIGN(const text::Json root, text::parse_block_yaml(yaml, "sft.yaml"));
  EXPECT_TRUE(has_llama_factory_arguments(root)) << yaml;
  return read_llama_factory(text::JsonView(root, "sft.yaml"),
                            [&](const std::string& name) { return text::parse_json(named, name); });
}

const std::string kModel = "model_name_or_path: a/b\ndo_train: true\nstage: sft\n";

TEST(LlamaFactory, WhatIsLeftOutHasItsDefaults) {
  const auto setup = read(kModel + "bf16: true\n");
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->model, "a/b");
  EXPECT_EQ(setup->tuning, Tuning::lora);
  EXPECT_EQ(setup->lora_rank, 8);
  EXPECT_EQ(setup->lora_targets, std::vector<std::string>{"all-linear"});
  EXPECT_EQ(setup->sequence, 2048);
  EXPECT_EQ(setup->batch, 8);
  EXPECT_EQ(setup->clip, 1);
  EXPECT_EQ(setup->optimizer, "adamw_torch_fused");
  EXPECT_EQ(setup->checkpoints, true);
  EXPECT_FALSE(setup->attention);
  EXPECT_EQ(setup->finds_unused, false);
  EXPECT_EQ(setup->weights, Half::bf16);
  EXPECT_EQ(setup->mixed_precision, Half::bf16);
}

TEST(LlamaFactory, WhatIsTrainedIsFloat32) {
  const std::string full = kModel + "finetuning_type: full\n";
  EXPECT_EQ(read(full + "bf16: true\n")->weights, Half::none);
  EXPECT_EQ(read(full + "bf16: true\n")->mixed_precision, Half::bf16);
  EXPECT_EQ(read(full)->weights, Half::none);
  const auto pure = read(full + "pure_bf16: true\n");
  EXPECT_EQ(pure->weights, Half::bf16);
  EXPECT_FALSE(pure->mixed_precision);
  EXPECT_EQ(read(full + "upcast_layernorm: true\n")->weights, Half::none);
  EXPECT_EQ(read(full + "disable_gradient_checkpointing: true\n")->checkpoints, false);
  EXPECT_EQ(read(full + "disable_gradient_checkpointing: true\n")->finds_unused, true);
  EXPECT_EQ(read(kModel + "fp16: true\n")->weights, Half::fp16);
}

TEST(LlamaFactory, FourBits) {
  const std::string four = kModel + "quantization_bit: 4\nbf16: true\n";
  EXPECT_EQ(read(four)->tuning, Tuning::qlora);
  EXPECT_EQ(read(four)->prepared, Prepared::none);
  EXPECT_EQ(read(four + "upcast_layernorm: true\n")->prepared, Prepared::norms);
  for (const char* more :
       {"quantization_method: hqq\n", "double_quantization: false\n", "use_dora: true\n"}) {
    EXPECT_FALSE(read(four + more)) << more;
  }
  EXPECT_FALSE(read(kModel + "finetuning_type: full\nquantization_bit: 4\n"));
  EXPECT_FALSE(read(kModel + "quantization_bit: 6\n"));
}

TEST(LlamaFactory, EightBits) {
  const auto setup = read(kModel + "quantization_bit: 8\nbf16: true\n");
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->tuning, Tuning::lora_8bit);
  EXPECT_EQ(setup->prepared, Prepared::none);
  EXPECT_EQ(setup->weights, Half::bf16);
  EXPECT_EQ(setup->is_reentrant, true);
  const std::string eight = kModel + "quantization_bit: 8\n";
  EXPECT_EQ(read(eight + "use_reentrant_gc: false\n")->is_reentrant, false);
  EXPECT_EQ(read(eight + "upcast_layernorm: true\n")->prepared, Prepared::norms);
  EXPECT_FALSE(read(eight + "quantization_method: eetq\n"));
  EXPECT_FALSE(read(kModel + "finetuning_type: full\nquantization_bit: 8\n"));
}

TEST(LlamaFactory, AdaptersAsTheyAreSaid) {
  const auto setup = read(kModel +
                          "lora_rank: 16\nlora_target: q_proj, v_proj\nlora_dropout: 0.1\n"
                          "flash_attn: fa2\nenable_liger_kernel: true\nuse_dora: true\n");
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->tuning, Tuning::dora);
  EXPECT_EQ(setup->lora_rank, 16);
  EXPECT_EQ(setup->lora_targets, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(read(kModel + "lora_target: [q_proj, v_proj]\n")->lora_targets, setup->lora_targets);
  EXPECT_EQ(setup->lora_dropout, 0.1);
  EXPECT_EQ(setup->attention, "flash_attention_2");
  EXPECT_EQ(setup->has_liger, true);
}

// cutoff_len of SFT is filled up to a multiple of 8.
TEST(LlamaFactory, LengthsOfRows) {
  EXPECT_EQ(read(kModel + "cutoff_len: 1001\n")->sequence, 1008);
  EXPECT_EQ(read(kModel + "cutoff_len: 1024\npacking: true\n")->sequence, 1024);
  const std::string pretrains = "model_name_or_path: a/b\ndo_train: true\nstage: pt\n";
  EXPECT_EQ(read(pretrains + "cutoff_len: 1001\n")->sequence, 1001);
  EXPECT_EQ(read(pretrains + "cutoff_len: 1001\npacking: true\n")->sequence, 1000);
  const std::string neat = kModel + "neat_packing: true\n";
  EXPECT_FALSE(read(neat + "per_device_train_batch_size: 1\n"));
  EXPECT_FALSE(read(neat + "flash_attn: fa2\n"));  // a batch of 8
  EXPECT_TRUE(read(neat + "flash_attn: fa2\nper_device_train_batch_size: 1\n"));
}

TEST(LlamaFactory, DeepSpeedsTypeIsItsOwn) {
  const auto setup = read(kModel + "finetuning_type: full\nbf16: true\ndeepspeed: ds.json\n",
                          R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}})");
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->sharing, Sharing::zero3);
  EXPECT_EQ(setup->weights, Half::bf16);
  EXPECT_FALSE(setup->mixed_precision);
  EXPECT_FALSE(
      read(kModel + "deepspeed: ds.json\n",
           R"({"zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 2}})"));
}

TEST(LlamaFactory, RayOnlyLaunches) {
  const auto setup = read(kModel + "ray_num_workers: 4\n");
  EXPECT_EQ(setup->ranks, 4);
  EXPECT_TRUE(setup->is_counted);
}

TEST(LlamaFactory, WhatIsNotModelledNamesItsPlace) {
  struct Case {
    const char* words;
    const char* place;
  };
  for (const Case& c :
       {Case{"use_unsloth: true\n", "use_unsloth"}, Case{"use_galore: true\n", "use_galore"},
        Case{"use_badam: true\n", "use_badam"}, Case{"shift_attn: true\n", "shift_attn"},
        Case{"mixture_of_depths: convert\n", "mixture_of_depths"},
        Case{"additional_target: embed_tokens\n", "additional_target"},
        Case{"finetuning_type: freeze\n", "finetuning_type"},
        Case{"finetuning_type: oft\n", "finetuning_type"},
        Case{"upcast_layernorm: true\n", "upcast_layernorm"}, Case{"fp8: true\n", "fp8"},
        Case{"flash_attn: fa3\n", "flash_attn"}, Case{"resize_vocab: true\n", "resize_vocab"},
        Case{"torch_compile: true\n", "torch_compile"},
        Case{"tensor_model_parallel_size: 2\n", "tensor_model_parallel_size"}}) {
    const auto setup = read(kModel + c.words);
    ASSERT_FALSE(setup) << c.words;
    EXPECT_EQ(setup.error().where, std::string("sft.yaml#/") + c.place);
    EXPECT_FALSE(setup.error().hint.empty() && c.place != std::string("torch_compile")) << c.words;
  }
  // PyYAML takes these for false.
  const std::string off = "use_unsloth: no\nuse_galore: Off\nload_in_8bit: off\nfsdp: no\n";
  EXPECT_TRUE(read("model_name_or_path: a/b\ndo_train: true\nstage: sft\n" + off));
  for (const char* stage : {"dpo", "kto", "rm", "ppo"}) {
    EXPECT_FALSE(read("model_name_or_path: a/b\ndo_train: true\nstage: " + std::string(stage)));
  }
  EXPECT_FALSE(read("model_name_or_path: a/b\nstage: sft\n"));
  EXPECT_FALSE(read("model: a/b\nmodel_class: llm\n"));
}

}  // namespace
}  // namespace headroom::engines
