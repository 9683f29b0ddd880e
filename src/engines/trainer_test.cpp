#include "engines/trainer.h"

#include <gtest/gtest.h>

#include "text/block_yaml.h"

namespace headroom::engines {
namespace {

Result<TrainingSetup> read(const std::string& yaml, const std::string& named = "{}") {
  HEADROOM_ASSIGN(const text::Json root, text::parse_block_yaml(yaml, "sft.yaml"));
  return read_trainer(text::JsonView(root, "sft.yaml"),
                      [&](const std::string& name) { return text::parse_json(named, name); });
}

Result<TrainingSetup> read_script(const std::string& script, const std::string& named = "{}") {
  HEADROOM_ASSIGN(const text::Json root, trainer_arguments_of(script, "train.sh"));
  return read_trainer(text::JsonView(root, "train.sh"),
                      [&](const std::string& name) { return text::parse_json(named, name); });
}

TEST(Trainer, WhatIsLeftOutHasItsDefaults) {
  const TrainingSetup setup = *read("output_dir: out\n");
  EXPECT_EQ(setup.batch, 8);
  EXPECT_EQ(setup.clip, 1);
  EXPECT_EQ(setup.optimizer, "adamw_torch_fused");
  EXPECT_FALSE(setup.mixed_precision);
  EXPECT_FALSE(setup.sharing);
  EXPECT_EQ(setup.finds_unused, true);
  EXPECT_EQ(read("output_dir: out\nmax_grad_norm: 0\n")->clip, std::nullopt);
  EXPECT_EQ(read("output_dir: out\ngradient_checkpointing: true\n")->finds_unused, false);
}

TEST(Trainer, AdaptersAsTrlIsTold) {
  const TrainingSetup setup = *read(
      "model_name_or_path: a/b\nper_device_train_batch_size: 2\nbf16: true\nuse_peft: true\n"
      "load_in_4bit: true\nlora_r: 32\nlora_target_modules:\n- q_proj\n- v_proj\nmax_length: 512\n"
      "attn_implementation: flash_attention_2\ndtype: bfloat16\n");
  EXPECT_EQ(setup.model, "a/b");
  EXPECT_EQ(setup.tuning, Tuning::qlora);
  EXPECT_EQ(setup.lora_rank, 32);
  EXPECT_EQ(setup.lora_targets, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(setup.sequence, 512);
  EXPECT_EQ(setup.mixed_precision, Half::bf16);
  EXPECT_EQ(setup.weights, Half::bf16);
}

TEST(Trainer, AdaptersBesideEightBits) {
  const std::string eight = "output_dir: o\nbf16: true\nuse_peft: true\nload_in_8bit: true\n";
  const auto setup = read(eight);
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->tuning, Tuning::lora_8bit);
  EXPECT_EQ(setup->prepared, Prepared::none);
  EXPECT_EQ(setup->adapters, Half::bf16);
  EXPECT_FALSE(setup->is_reentrant);
  EXPECT_EQ(read(eight + "gradient_checkpointing_kwargs:\n  use_reentrant: true\n")->is_reentrant,
            true);
  EXPECT_FALSE(read(eight + "load_in_4bit: true\n"));
}

TEST(Trainer, AScriptSaysTheSame) {
  const TrainingSetup setup = *read_script(
      "B=4\ntorchrun --nproc-per-node=8 --nnodes 2 train.py --per_device_train_batch_size $B \\\n"
      "  --bf16 True --gradient_checkpointing --fsdp 'full_shard auto_wrap' \\\n"
      "  --lora_target_modules q_proj v_proj --use_peft --output_dir out\n");
  EXPECT_EQ(setup.batch, 4);
  EXPECT_EQ(setup.ranks, 16);
  EXPECT_EQ(setup.nodes, 2);
  EXPECT_EQ(setup.sharing, Sharing::fsdp2);
  EXPECT_EQ(setup.checkpoints, true);
  EXPECT_EQ(setup.tuning, Tuning::lora);
  EXPECT_EQ(setup.lora_targets.size(), 2);
  EXPECT_TRUE(is_trainer_script("train --output-dir o --per-device-train-batch-size 4"));
  EXPECT_FALSE(is_trainer_script("python init.py --model_name_or_path a --output_dir o"));
  const TrainingSetup zero =
      *read_script("deepspeed --num_nodes 2 --num_gpus 8 t --output_dir o\n");
  EXPECT_EQ(zero.ranks, 16);
  EXPECT_EQ(zero.nodes, 2);
  const TrainingSetup launched =
      *read_script("accelerate launch --num_machines 2 --num_processes 16 t --output_dir o\n");
  EXPECT_EQ(launched.ranks, 16);
  EXPECT_EQ(launched.nodes, 2);
  // What a shell would have to work out.
  const auto unknown = read_script("t --output_dir o --per_device_train_batch_size $((2 * 4))\n");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().hint.find("write the number"), std::string::npos);
}

TEST(Trainer, FsdpOfBothVersions) {
  EXPECT_EQ(read("output_dir: o\nfsdp: true\n")->sharing, Sharing::fsdp2);
  EXPECT_EQ(read("output_dir: o\nfsdp: full_shard\nfsdp_config:\n  fsdp_version: 1\n")->sharing,
            Sharing::fsdp1);
  const auto named = read("output_dir: o\nfsdp: true\nfsdp_config: fsdp.json\n",
                          R"({"version": 1, "activation_checkpointing": true})");
  EXPECT_EQ(named->sharing, Sharing::fsdp1);
  EXPECT_EQ(named->checkpoints, true);
  EXPECT_FALSE(read("output_dir: o\nfsdp_config:\n  version: 1\n")->sharing);
}

TEST(Trainer, FsdpOffloads) {
  const std::string words = "output_dir: o\nfsdp: full_shard offload\n";
  const std::string first = words + "fsdp_config:\n  version: 1\n";
  ASSERT_TRUE(read(first));
  EXPECT_EQ(read(first)->offloads_parameters, true);
  EXPECT_EQ(read(first + "  cpu_offload: false\n")->offloads_parameters, false);
  const std::string said = "output_dir: o\nfsdp: true\nfsdp_config:\n  fsdp_cpu_offload: true\n";
  EXPECT_EQ(read(said + "  fsdp_version: 1\n")->offloads_parameters, true);
  for (const std::string& second : {words, said}) {
    ASSERT_TRUE(read(second));
    EXPECT_EQ(read(second)->sharing, Sharing::fsdp2);
    EXPECT_EQ(read(second)->offloads_parameters, true);
  }
}

// What DeepSpeed's file leaves to the Trainer has the Trainer's.
TEST(Trainer, DeepSpeedsAutoIsTheTrainers) {
  const std::string zero =
      R"({"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",
          "bf16": {"enabled": "auto"},
          "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}})";
  const auto setup = *read(
      "output_dir: o\nper_device_train_batch_size: 3\nbf16: true\nmax_grad_norm: 0.5\n"
      "deepspeed: ds.json\n",
      zero);
  EXPECT_EQ(setup.sharing, Sharing::zero2);
  EXPECT_EQ(setup.weights, Half::bf16);
  EXPECT_FALSE(setup.mixed_precision);
  EXPECT_EQ(setup.batch, 3);
  EXPECT_EQ(setup.clip, 0.5);
  EXPECT_EQ(setup.reduce_bucket_size, kOfHiddenSize);
  EXPECT_TRUE(setup.notes.empty());
}

TEST(Trainer, DeepSpeedsThirdStageAndItsOffload) {
  const auto setup = *read("output_dir: o\nbf16: true\ndeepspeed: ds.json\n",
                           R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3,
          "stage3_prefetch_bucket_size": "auto", "stage3_max_live_parameters": 1e8,
          "offload_optimizer": {"device": "cpu"}}})");
  EXPECT_EQ(setup.sharing, Sharing::zero3);
  EXPECT_EQ(setup.stage3,
            (Stage3Said{std::nullopt, kOfHiddenSize, std::nullopt, 100'000'000, std::nullopt}));
  EXPECT_EQ(setup.offloads_optimizer, true);
  EXPECT_EQ(setup.offloads_parameters, std::nullopt);
}

// Where nobody says so, accelerate's loop does not.
TEST(Trainer, GradientsMayBeReducedBehindEachMicroBatch) {
  const std::string sharded = "output_dir: o\nfsdp: full_shard\n";
  EXPECT_FALSE(read(sharded)->syncs_each_batch);
  const auto setup = *read(sharded +
                           "accelerator_config:\n  gradient_accumulation_kwargs:\n"
                           "    sync_each_batch: true\n");
  EXPECT_EQ(setup.syncs_each_batch, true);
}

TEST(Trainer, CompilesTheModelAsAWhole) {
  for (const char* const said :
       {"torch_compile: true", "torch_compile_backend: inductor", "torch_compile_mode: default"}) {
    EXPECT_EQ(read(std::string("output_dir: o\n") + said + "\n")->compiles_model, true) << said;
  }
  EXPECT_EQ(read("output_dir: o\ntorch_compile: false\n")->compiles_model, false);
  EXPECT_FALSE(read("output_dir: o\n")->compiles_model.value_or(false));
}

TEST(Trainer, WhatIsNotModelledIsNamed) {
  for (const char* const line :
       {"torch_compile_mode: max-autotune", "torch_compile_backend: eager", "load_in_8bit: true",
        "load_in_4bit: true", "label_smoothing_factor: 0.1", "activation_offloading: true",
        "fsdp: hybrid_shard", "fp16: true\nbf16: true", "dtype: float8", "bf16: maybe",
        "per_device_train_batch_size: 0",
        "gradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  offload: true"}) {
    const auto setup = read(std::string("output_dir: o\n") + line + "\n");
    EXPECT_FALSE(setup) << line;
    if (!setup) {
      EXPECT_TRUE(setup.error().where.starts_with("sft.yaml#")) << setup.error().where;
    }
  }
}

}  // namespace
}  // namespace headroom::engines
