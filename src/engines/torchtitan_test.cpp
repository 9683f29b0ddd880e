#include "engines/torchtitan.h"

#include <gtest/gtest.h>

namespace headroom::engines {
namespace {

std::string command(const std::string& more, const std::string& config = "llama3_8b") {
  return "torchrun --nproc_per_node=8 --rdzv_backend c10d --tee 3 -m torchtitan.train --module "
         "llama3 "
         "--config " +
         config + " " + more;
}

std::string message_of(const std::string& content) {
  const auto setup = read_torchtitan(content, "run.sh", {});
  return setup ? "" : setup.error().message;
}

TEST(Torchtitan, AConfigurationOfItsRegistryIsKnown) {
  ASSERT_TRUE(is_torchtitan_script(command("")));
  const auto setup = read_torchtitan(command(""), "run.sh", {});
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->model, "meta-llama/Llama-3.1-8B");
  EXPECT_EQ(setup->sharing, Sharing::fsdp2);
  EXPECT_EQ(setup->ranks, 8);
  EXPECT_EQ(setup->batch, 1);
  EXPECT_EQ(setup->sequence, 8192);
  EXPECT_EQ(setup->mixed_precision, Half::bf16);
  EXPECT_EQ(setup->reduced, Half::none);
  EXPECT_TRUE(*setup->checkpoints && setup->checkpoints_half_the_products);
  EXPECT_EQ(setup->clip, 1);
  EXPECT_EQ(setup->loss_chunks, 8);
  EXPECT_EQ(setup->optimizer_loop, "fused");
  EXPECT_EQ(setup->notes.size(), 2);  // layers and attention, CUDA graphs
}

TEST(Torchtitan, WhatIsSaidComesBeforeTheConfiguration) {
  const auto setup = read_torchtitan(
      "BATCH=4\nNGPU=${NGPU:-16}\ntorchrun --nproc_per_node ${NGPU} --nnodes 2 -m torchtitan.train "
      "--module llama3 --config llama3_70b --parallelism.tensor_parallel_degree=1 "
      "--parallelism.data-parallel-replicate-degree 2 --training.local_batch_size $BATCH "
      "--training.global_batch_size 256 --training.seq_len 4096 --training.dtype bfloat16 "
      "--training.max_norm 0.5 --training.disable_cuda_graphs --optimizer.implementation for-loop "
      "--loss.num_chunks 1 --training.steps 10 --made.up 3 activation_checkpoint:none",
      "run.sh", {});
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->ranks, 16);
  EXPECT_EQ(setup->replicas, 2);
  EXPECT_EQ(setup->nodes, 2);
  EXPECT_EQ(setup->grad_accum, 2);
  EXPECT_EQ(setup->sequence, 4096);
  EXPECT_EQ(setup->weights, Half::bf16);
  EXPECT_EQ(setup->clip, 0.5);
  EXPECT_FALSE(*setup->checkpoints);
  EXPECT_EQ(setup->optimizer_loop, "loop");
  ASSERT_EQ(setup->notes.size(), 2);
  EXPECT_EQ(setup->notes[1], "nobody looked at this, which may change memory: --made.up");
}

// As its run_train.sh has them, in two branches.
TEST(Torchtitan, NamesInQuotesAreNames) {
  const auto setup = read_torchtitan(
      "NGPU=${NGPU:-\"8\"}\nCONFIG=\"llama3_8b\"\nif [ -n \"$COMM_MODE\" ]; then\n"
      "  NGPU=\"${NGPU}\" python3 -m torchtitan.train --module llama3 --config ${CONFIG} \"$@\"\n"
      "else\n  PYTORCH_ALLOC_CONF=\"expandable_segments:True\" torchrun "
      "--nproc_per_node=${NGPU} -m torchtitan.train --module llama3 --config ${CONFIG} "
      "\"$@\"\nfi\n",
      "run.sh", {});
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->ranks, 8);
  EXPECT_EQ(setup->allocator, "expandable_segments:True");
}

TEST(Torchtitan, GpusThatNobodySaysAreThoseBeside) {
  const std::string bare = "python -m torchtitan.train --module qwen3 --config qwen3_14b ";
  EXPECT_EQ(read_torchtitan(bare, "run.sh", {})->ranks, 1);
  EXPECT_EQ(read_torchtitan(bare, "run.sh", 4)->ranks, 4);
  EXPECT_EQ(read_torchtitan(bare + "--parallelism.data_parallel_shard_degree 2 "
                                   "--parallelism.data_parallel_replicate_degree 4",
                            "run.sh", {})
                ->replicas,
            4);
  EXPECT_FALSE(
      read_torchtitan(bare + "--parallelism.data_parallel_replicate_degree 3", "run.sh", 4));
  EXPECT_FALSE(read_torchtitan(bare + "--training.global_batch_size 64", "run.sh", {}));
}

// distributed/fsdp.py of 0.3.0: CPUOffloadPolicy of every unit, and nothing else.
TEST(Torchtitan, OffloadIsOfTheShares) {
  const auto kept = read_torchtitan(command("--training.disable_cuda_graphs"), "run.sh", {});
  ASSERT_TRUE(kept) << kept.error().to_string();
  EXPECT_FALSE(kept->offloads_parameters);
  const auto setup =
      read_torchtitan(command("--training.disable_cuda_graphs --training.enable_cpu_offload "
                              "activation_checkpoint:full"),
                      "run.sh", {});
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->offloads_parameters, true);
  EXPECT_FALSE(setup->offloads_optimizer);  // the states go where the parameters are
  EXPECT_EQ(setup->notes, kept->notes);
}

// config/configs.py: both are compiled where nobody says which.
TEST(Torchtitan, CompilesLayersAndTheLoss) {
  const auto compiled = [](const std::string& arguments) {
    const auto setup = read_torchtitan(command(arguments), "run.sh", {});
    EXPECT_TRUE(setup) << setup.error().to_string();
    return std::pair(setup->compiles_layers.value_or(false), setup->compiles_loss.value_or(false));
  };
  EXPECT_EQ(compiled(""), std::pair(false, false));
  EXPECT_EQ(compiled("--compile.enable --loss.num_chunks 1"), std::pair(true, true));
  EXPECT_EQ(compiled("--compile.enable --compile.components model --loss.num_chunks 1"),
            std::pair(true, false));
  EXPECT_EQ(compiled("--compile.enable --compile.components loss --loss.num_chunks 1"),
            std::pair(false, true));
  EXPECT_EQ(compiled("--compile.enable"), std::pair(true, false));  // in chunks it is Liger's here
}

// parallel_dims.py: what is left of the GPUs shares sequences or has shards of its own.
TEST(Torchtitan, ContextRanksAreAmongTheGpus) {
  const auto setup =
      read_torchtitan(command("--parallelism.context_parallel_degree 2"), "run.sh", {});
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->context_ranks, 2);
  EXPECT_EQ(setup->ranks, 4);
  const auto all =
      read_torchtitan(command("--parallelism.context_parallel_degree 8"), "run.sh", {});
  ASSERT_TRUE(all) << all.error().to_string();
  EXPECT_EQ(all->ranks, 1);
  EXPECT_FALSE(read_torchtitan(command("--parallelism.context_parallel_degree 3"), "run.sh", {}));
  EXPECT_FALSE(
      read_torchtitan(command("--parallelism.context_parallel_degree 1000000"), "run.sh", {}));
}

// trainer.py: a step's sequences on a device are a pipeline's micro-batches.
TEST(Torchtitan, TensorRanksAndStagesAreAmongTheGpus) {
  const auto setup = read_torchtitan(
      command("--parallelism.tensor_parallel_degree 2 --parallelism.pipeline_parallel_degree 2 "
              "--training.local_batch_size 8 --parallelism.pipeline_parallel_microbatch_size 2 "
              "--parallelism.pipeline_parallel_schedule GPipe --loss.num_chunks 1"),
      "run.sh", {});
  ASSERT_TRUE(setup) << setup.error().to_string();
  EXPECT_EQ(setup->tensor_ranks, 2);
  EXPECT_EQ(setup->stages, 2);
  EXPECT_EQ(setup->ranks, 2);
  EXPECT_EQ(setup->schedule, StageSchedule::gpipe);
  EXPECT_EQ(setup->stage_chunks, 1);
  EXPECT_EQ(setup->batch, 2);
  EXPECT_EQ(setup->grad_accum, 4);
  EXPECT_FALSE(setup->shards_ends);  // a stage stays gathered
}

// Two on a rank, unless it is said how many layers each has.
TEST(Torchtitan, SchedulesOfSeveralStagesHaveTwoOnARank) {
  for (const auto& [name, schedule] :
       {std::pair("Interleaved1F1B", StageSchedule::one_forward_one_backward),
        std::pair("InterleavedZeroBubble", StageSchedule::zero_bubble)}) {
    const auto setup =
        read_torchtitan(command("--parallelism.pipeline_parallel_degree 2 --loss.num_chunks 1 "
                                "--parallelism.pipeline_parallel_schedule " +
                                std::string(name)),
                        "run.sh", {});
    ASSERT_TRUE(setup) << setup.error().to_string();
    EXPECT_EQ(setup->schedule, schedule);
    EXPECT_EQ(setup->stage_chunks, 2);
  }
}

// 32 layers, embedding and head; _get_pipeline_metadata's own refusals, too.
TEST(Torchtitan, LayersOfAPartSayHowManyThereAre) {
  const auto chunks = [](const std::string& schedule, const std::string& layers) {
    const auto setup = read_torchtitan(
        command("--parallelism.pipeline_parallel_degree 2 --loss.num_chunks 1 "
                "--parallelism.pipeline_parallel_schedule " +
                schedule + " --parallelism.pipeline_parallel_layers_per_stage " + layers),
        "run.sh", {});
    return setup ? setup->stage_chunks : 0;
  };
  EXPECT_EQ(chunks("1F1B", "17"), 1);
  EXPECT_EQ(chunks("1F1B", "33"), 1);
  EXPECT_EQ(chunks("1F1B", "34"), 0);  // one part for two ranks
  EXPECT_EQ(chunks("1F1B", "9223372036854775807"), 0);
  EXPECT_EQ(chunks("1F1B", "9"), 0);  // two parts on a rank
  EXPECT_EQ(chunks("Interleaved1F1B", "9"), 2);
  EXPECT_EQ(chunks("Interleaved1F1B", "6"), 3);
  EXPECT_EQ(chunks("Interleaved1F1B", "5"), 0);  // seven parts
  EXPECT_EQ(chunks("Interleaved1F1B", "17"), 0);
  EXPECT_EQ(chunks("InterleavedZeroBubble", "1"), 17);
  EXPECT_EQ(chunks("ZBVZeroBubble", "9"), 2);
  EXPECT_EQ(chunks("ZBVZeroBubble", "6"), 0);
}

// Its own configuration of 70B on a machine: tensor parallel ranks alone.
TEST(Torchtitan, OneRankMayBeAloneWithItsShare) {
  for (const auto& [more, config] :
       {std::pair("", "llama3_70b"),
        std::pair("--parallelism.pipeline_parallel_degree 8 --loss.num_chunks 1", "llama3_8b")}) {
    const auto setup = read_torchtitan(command(more, config), "run.sh", {});
    ASSERT_TRUE(setup) << setup.error().to_string();
    EXPECT_EQ(setup->ranks, 1);
    EXPECT_TRUE(setup->is_counted);
    EXPECT_EQ(setup->tensor_ranks * setup->stages, 8);
  }
}

TEST(Torchtitan, WhatIsNotModelledIsNamed) {
  EXPECT_EQ(message_of(command("", "llama3_405b")), "--config llama3_405b is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.pipeline_parallel_degree 2 "
                               "--parallelism.module_fqns_per_model_part x --loss.num_chunks 1")),
            "--parallelism.module-fqns-per-model-part x is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.pipeline_parallel_degree 2")),
            "--loss.num-chunks 8 is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.tensor_parallel_degree 2 "
                               "--parallelism.enable_sequence_parallel False")),
            "--parallelism.no-enable-sequence-parallel is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.tensor_parallel_degree 2 --loss.num_chunks 1 "
                               "--parallelism.no-enable-sequence-parallel")),
            "--parallelism.no-enable-sequence-parallel is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.expert_parallel_degree 2")),
            "--parallelism.expert-parallel-degree 2 is not modelled");
  EXPECT_EQ(message_of(command("--compile.enable --compile.backend eager")),
            "--compile.backend eager is not modelled");
  EXPECT_EQ(message_of(command("--compile.enable --compile.components optimizer")),
            "--compile.components optimizer is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.pipeline_parallel_degree 2 "
                               "--parallelism.pipeline_parallel_schedule LoopedBFS")),
            "--parallelism.pipeline-parallel-schedule LoopedBFS is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.pipeline_parallel_degree 2 "
                               "--parallelism.pipeline_parallel_layers_per_stage 4")),
            "4 layers a part make 9 parts of the model on 2 ranks, which 1F1B does not take");
  EXPECT_EQ(message_of("torchrun --nproc_per_node 8 -m torchtitan.train --module qwen3 --config "
                       "qwen3_0_6b --parallelism.pipeline_parallel_degree 2 --loss.num_chunks 1"),
            "--parallelism.pipeline-parallel-degree 2 is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.data_parallel_shard_degree 1 "
                               "--parallelism.data_parallel_replicate_degree 8")),
            "--parallelism.data-parallel-shard-degree 1 is not modelled");
  EXPECT_EQ(message_of(command("--parallelism.fsdp_reshard_after_forward always")),
            "--parallelism.fsdp-reshard-after-forward always is not modelled");
  EXPECT_EQ(message_of(command("activation_checkpoint:memory-budget")),
            "activation-checkpoint:memory-budget is not modelled");
  EXPECT_EQ(message_of(command("--optimizer.implementation fused_opt_states_bf16")),
            "--optimizer.implementation fused_opt_states_bf16 is not modelled");
  EXPECT_EQ(message_of(command("--training.mixed_precision_param float16")),
            "--training.mixed-precision-param float16 is not modelled");
  EXPECT_EQ(message_of(command("--training.max_norm inf")),
            "--training.max-norm inf is not modelled");
  EXPECT_EQ(message_of(command("--training.local_batch_size 0")),
            "--training.local-batch-size is '0'");
}

TEST(Torchtitan, WhatIsWrittenReadsBackTheSame) {
  for (const char* more :
       {"", "activation_checkpoint:full --training.dtype bfloat16",
        "activation_checkpoint:none --training.mixed_precision_param float32",
        "--training.enable_cpu_offload activation_checkpoint:full",
        "--parallelism.context_parallel_degree 4",
        "--parallelism.context_parallel_degree 8 --training.global_batch_size 4",
        "--parallelism.tensor_parallel_degree 2 --parallelism.pipeline_parallel_degree 2 "
        "--training.local_batch_size 8 --loss.num_chunks 1",
        "--parallelism.pipeline_parallel_degree 8 --loss.num_chunks 1",
        "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule "
        "InterleavedZeroBubble --parallelism.pipeline_parallel_layers_per_stage 6 "
        "--loss.num_chunks 1",
        "--parallelism.data_parallel_replicate_degree 2 --training.max_norm 0.25 --nnodes 4 "
        "--training.global_batch_size 96 --loss.num_chunks 1 --optimizer.implementation foreach"}) {
    auto first = read_torchtitan(command(more), "run.sh", {});
    ASSERT_TRUE(first) << first.error().to_string();
    const auto written = torchtitan_script(*first);
    ASSERT_TRUE(written);
    auto again = read_torchtitan(*written, "run.sh", {});
    ASSERT_TRUE(again) << again.error().to_string() << *written;
    EXPECT_EQ(*torchtitan_script(*again), *written);
    EXPECT_EQ(again->ranks, first->ranks);
    EXPECT_EQ(again->context_ranks, first->context_ranks);
    EXPECT_EQ(again->tensor_ranks, first->tensor_ranks);
    EXPECT_EQ(again->stages, first->stages);
    EXPECT_EQ(again->stage_chunks, first->stage_chunks);
    EXPECT_EQ(again->schedule, first->schedule);
    EXPECT_EQ(again->batch, first->batch);
    EXPECT_EQ(again->grad_accum.value_or(1), first->grad_accum.value_or(1));
    EXPECT_EQ(again->mixed_precision, first->mixed_precision);
    EXPECT_EQ(again->weights, first->weights);
    EXPECT_EQ(again->offloads_parameters, first->offloads_parameters);
    EXPECT_EQ(again->loss_chunks, first->loss_chunks);
  }
  TrainingSetup unknown;
  unknown.model = "openai-community/gpt2";
  EXPECT_FALSE(torchtitan_script(unknown));
}

}  // namespace
}  // namespace headroom::engines
