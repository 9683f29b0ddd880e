#include "engines/training_setup.h"

#include <gtest/gtest.h>

#include "engines/accelerate.h"
#include "engines/deepspeed.h"
#include "text/block_yaml.h"

namespace headroom::engines {
namespace {

Result<TrainingSetup> from_accelerate(const std::string& words) {
  HEADROOM_ASSIGN(const text::Json root, text::parse_block_yaml(words, "a.yaml"));
  return read_accelerate(text::JsonView(root, "a.yaml"));
}

Result<TrainingSetup> from_deepspeed(const std::string& words) {
  HEADROOM_ASSIGN(const text::Json root, text::parse_json(words, "ds.json"));
  return read_deepspeed(text::JsonView(root, "ds.json"));
}

void expect_same(const TrainingSetup& a, const TrainingSetup& b) {
  EXPECT_EQ(a.sharing, b.sharing);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.replicas, b.replicas);
  EXPECT_EQ(a.nodes, b.nodes);
  EXPECT_EQ(a.mixed_precision.value_or(Half::none), b.mixed_precision.value_or(Half::none));
  EXPECT_EQ(a.weights.value_or(Half::none), b.weights.value_or(Half::none));
  EXPECT_EQ(a.checkpoints.value_or(false), b.checkpoints.value_or(false));
  EXPECT_EQ(a.grad_accum.value_or(1), b.grad_accum.value_or(1));
  EXPECT_EQ(a.clip, b.clip);
  EXPECT_EQ(a.stage3, b.stage3);
  EXPECT_EQ(a.offloads_optimizer.value_or(false), b.offloads_optimizer.value_or(false));
  EXPECT_EQ(a.offloads_parameters.value_or(false), b.offloads_parameters.value_or(false));
}

TEST(Accelerate, WhatIsWrittenReadsBack) {
  TrainingSetup setup;
  setup.sharing = Sharing::none;
  expect_same(*from_accelerate(accelerate_yaml(setup)), setup);
  setup.sharing = Sharing::ddp;
  setup.ranks = 8;
  setup.mixed_precision = Half::bf16;
  expect_same(*from_accelerate(accelerate_yaml(setup)), setup);
  setup.sharing = Sharing::fsdp1;
  setup.checkpoints = true;
  setup.offloads_parameters = true;
  expect_same(*from_accelerate(accelerate_yaml(setup)), setup);
  setup.offloads_parameters = false;
  expect_same(*from_accelerate(accelerate_yaml(setup)), setup);
  setup.sharing = Sharing::fsdp2;
  setup.ranks = 4;
  setup.replicas = 4;
  setup.nodes = 2;
  expect_same(*from_accelerate(accelerate_yaml(setup)), setup);
  for (const Sharing stage : {Sharing::zero1, Sharing::zero2, Sharing::zero3}) {
    TrainingSetup zero;
    zero.offloads_optimizer = stage != Sharing::zero1;
    zero.offloads_parameters = stage == Sharing::zero3;
    zero.sharing = stage;
    zero.ranks = 8;
    zero.weights = Half::fp16;
    zero.grad_accum = 4;
    zero.clip = 1;
    expect_same(*from_accelerate(accelerate_yaml(zero)), zero);
  }
}

TEST(Accelerate, CompilesTheModelOrWhatRepeatsInIt) {
  const std::string alone = "distributed_type: 'NO'\n";
  const auto whole = from_accelerate(alone + "dynamo_config:\n  dynamo_backend: INDUCTOR\n");
  EXPECT_EQ(whole->compiles_model, true);
  EXPECT_FALSE(whole->compiles_layers);
  const auto layers = from_accelerate(alone +
                                      "dynamo_config:\n  dynamo_backend: INDUCTOR\n"
                                      "  dynamo_use_regional_compilation: true\n");
  EXPECT_EQ(layers->compiles_layers, true);
  EXPECT_FALSE(layers->compiles_model);
  EXPECT_EQ(from_accelerate(alone + "dynamo_backend: INDUCTOR\n")->compiles_model, true);
  for (const char* off : {"dynamo_backend: 'NO'\n", "dynamo_config: {}\n"}) {
    EXPECT_FALSE(from_accelerate(alone + off)->compiles_model) << off;
  }
}

TEST(Accelerate, WhatIsNotModelledIsNamed) {
  const std::string fsdp =
      "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n";
  EXPECT_TRUE(from_accelerate(fsdp));
  struct Case {
    std::string words;
    const char* where;
  };
  for (const Case& c : {
           Case{"num_processes: 8\n", "distributed_type"},
           Case{fsdp + "dynamo_config:\n  dynamo_backend: EAGER\n", "dynamo_backend"},
           Case{fsdp + "dynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_mode: max-autotune\n",
                "dynamo_mode"},
           Case{"distributed_type: MEGATRON_LM\nnum_processes: 8\n", "distributed_type"},
           Case{"distributed_type: MULTI_GPU\nnum_processes: 1\n", "num_processes"},
           Case{"distributed_type: MULTI_GPU\nnum_processes: 0\n", "num_processes"},
           Case{"distributed_type: MULTI_GPU\nnum_processes: 1e30\n", "num_processes"},
           Case{fsdp + "  fsdp_reshard_after_forward: 7\n", "fsdp_reshard_after_forward"},
           Case{fsdp + "parallelism_config:\n  parallelism_config_tp_size: 2\n", "tp_size"},
           Case{fsdp + "parallelism_config:\n  parallelism_config_dp_replicate_size: 3\n",
                "parallelism_config"},
           Case{fsdp + "mixed_precision: fp8\n", "mixed_precision"},
           Case{"distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: "
                "NO_SHARD\n",
                "fsdp_sharding_strategy"},
           Case{"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: "
                "0\n",
                "zero_stage"},
           Case{"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: "
                "2\n  offload_param_device: cpu\n",
                "offload_param_device"},
           Case{"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: "
                "3\n  offload_param_device: nvme\n",
                "offload_param_device"},
           Case{"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n"
                "  deepspeed_config_file: ds.json\n  zero_stage: 2\n",
                "deepspeed_config_file"},
       }) {
    const auto read = from_accelerate(c.words);
    ASSERT_FALSE(read) << c.words;
    EXPECT_NE(read.error().where.find(c.where), std::string::npos) << read.error().to_string();
  }
}

// axolotl's files have them so.
TEST(DeepSpeed, TheThirdStagesCountsMayLeaveOutTheirBeginning) {
  const auto setup = from_deepspeed(
      R"({"zero_optimization": {"stage": 3, "sub_group_size": 0, "max_live_parameters": 0,
          "prefetch_bucket_size": 7}})");
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->stage3[static_cast<size_t>(Stage3::sub_group_size)], 1);
  EXPECT_EQ(setup->stage3[static_cast<size_t>(Stage3::max_live_parameters)], 0);
  EXPECT_EQ(setup->stage3[static_cast<size_t>(Stage3::prefetch_bucket_size)], 7);
  EXPECT_FALSE(
      from_deepspeed(R"({"zero_optimization": {"stage": 3, "allgather_sequential": true}})"));
  EXPECT_FALSE(
      from_deepspeed(R"({"zero_optimization": {"stage": 2}, "compile": {"deepcompile": true}})"));
}

TEST(DeepSpeed, WhatIsWrittenReadsBack) {
  TrainingSetup setup;
  setup.sharing = Sharing::zero2;
  setup.ranks = 16;
  setup.batch = 3;
  setup.grad_accum = 5;
  setup.weights = Half::bf16;
  setup.clip = 0.5;
  setup.reduce_bucket_size = 1'000'000;
  setup.overlap_comm = true;
  const auto read = from_deepspeed(deepspeed_json(setup));
  ASSERT_TRUE(read) << read.error().to_string();
  expect_same(*read, setup);
  EXPECT_EQ(read->batch, 3);
  EXPECT_EQ(read->reduce_bucket_size, 1'000'000);
  EXPECT_EQ(read->overlap_comm, true);
}

TEST(DeepSpeed, TheThirdStageReadsBack) {
  TrainingSetup setup;
  setup.sharing = Sharing::zero3;
  setup.ranks = 8;
  setup.weights = Half::bf16;
  setup.reduce_bucket_size = kOfHiddenSize;
  setup.stage3 = {1'000'000'000, 0, kOfHiddenSize, 1, 2};
  setup.offloads_optimizer = true;
  setup.offloads_parameters = true;
  const auto read = from_deepspeed(deepspeed_json(setup));
  ASSERT_TRUE(read) << read.error().to_string();
  expect_same(*read, setup);
  EXPECT_EQ(read->reduce_bucket_size, kOfHiddenSize);
  EXPECT_EQ(read->overlap_comm, true);
}

// A file that names one GPU is of one; one that names none may be of any number.
TEST(DeepSpeed, OneGpuIsCounted) {
  const std::string one = R"({"zero_optimization": {"stage": 3}, "train_batch_size": 2,
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1})";
  EXPECT_TRUE(from_deepspeed(one)->is_counted);
  EXPECT_FALSE(from_deepspeed(R"({"zero_optimization": {"stage": 3}})")->is_counted);
}

TEST(DeepSpeed, AutoIsNothing) {
  const auto read = from_deepspeed(
      R"({"zero_optimization": {"stage": 1, "overlap_comm": "auto", "reduce_bucket_size": "auto"},
          "train_batch_size": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"}})");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->sharing, Sharing::zero1);
  EXPECT_EQ(read->ranks, 1);
  EXPECT_FALSE(read->overlap_comm || read->clip || read->weights || read->batch);
}

TEST(DeepSpeed, ATypeThatIsOnIsTheTypeThoughTheOtherIsLeftOpen) {
  const auto read = from_deepspeed(
      R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "fp16": {"enabled": "auto"}})");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->weights, Half::bf16);
}

TEST(DeepSpeed, WhatIsNotModelledIsNamed) {
  for (const char* words :
       {R"({})", R"([])", R"({"zero_optimization": {}})", R"({"zero_optimization": {"stage": 4}})",
        R"({"zero_optimization": {"stage": 0}})",
        R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}})",
        R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})",
        R"({"zero_optimization": {"stage": 3, "offload_optimizer":
            {"device": "cpu", "ratio": 0.5}}})",
        R"({"zero_optimization": {"stage": 3, "offload_param":
            {"device": "cpu", "pin_memory": false}}})",
        R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})",
        R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}})",
        R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true}})",
        R"({"zero_optimization": {"stage": 3, "stage3_allgather_sequential": true}})",
        R"({"zero_optimization": {"stage": 3, "memory_efficient_linear": false}})",
        R"({"zero_optimization": {"stage": 3, "stage3_model_persistence_threshold": 1000}})",
        R"({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": -1}})",
        R"({"zero_optimization": {"stage": 2, "reduce_scatter": false}})",
        R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": -1}})",
        R"({"zero_optimization": {"stage": 2}, "train_batch_size": 7,
            "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1})"}) {
    EXPECT_FALSE(from_deepspeed(words)) << words;
  }
}

}  // namespace
}  // namespace headroom::engines
