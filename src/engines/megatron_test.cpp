#include "engines/megatron.h"

#include <gtest/gtest.h>

namespace headroom::engines {
namespace {

constexpr std::string_view kScript = R"(#!/bin/bash
# --num-layers 99 is not meant
TP=2
PP=${PP:-4}
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192
    --swiglu --normalization RMSNorm --disable-bias-linear
    --use-rotary-position-embeddings --untie-embeddings-and-output-weights
    --ffn-hidden-size 14336 --vocab-size 128256
)
torchrun --nproc_per_node 8 --nnodes=2 pretrain_gpt.py "${MODEL_ARGS[@]}" \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \
    --sequence-parallel --use-distributed-optimizer --bf16 \
    --micro-batch-size 1 --global-batch-size 128 --lr 3e-4 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
)";

TEST(MegatronArguments, AScriptIsReadWithItsNames) {
  ASSERT_TRUE(has_megatron_arguments(kScript));
  const auto a = read_megatron_arguments(kScript, "run.sh");
  ASSERT_TRUE(a) << a.error().to_string();
  EXPECT_EQ(a->layers, 32);
  EXPECT_EQ(a->query_groups, 8);
  EXPECT_EQ(a->ffn, 14336);
  EXPECT_EQ(a->kv_channels, 128);
  EXPECT_EQ(a->tensor_ranks, 2);
  EXPECT_EQ(a->stages, 4);
  EXPECT_EQ(a->vocabulary, 128'256);
  EXPECT_EQ(a->ranks_per_node, 8);
  EXPECT_EQ(a->nodes, 2);
  EXPECT_EQ(a->global_batch, 128);
  EXPECT_TRUE(a->sequence_parallel && a->distributed_optimizer && a->swiglu && a->rms_norm);
  EXPECT_TRUE(a->rotary && a->recomputes_layers && !a->tied && !a->linear_bias);
  EXPECT_EQ(a->positions, 0);
  EXPECT_EQ(a->type, "bf16");
  EXPECT_EQ(a->harmless, std::vector<std::string>{"--lr"});
  EXPECT_TRUE(a->unknown.empty() && a->contradictions.empty());
}

TEST(MegatronArguments, TheYamlOfItsTestsIsReadToo) {
  constexpr std::string_view kYaml = R"(MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --seq-length: 1024
  --max-position-embeddings: 1024
  --vocab-size: 50257
  --tensor-model-parallel-size: 2
  --sequence-parallel: true
  --bf16: true
  --no-gradient-accumulation-fusion: true
  --overlap-grad-reduce: false
)";
  const auto a = read_megatron_arguments(kYaml, "model_config.yaml");
  ASSERT_TRUE(a) << a.error().to_string();
  EXPECT_EQ(a->ffn, 2048);
  EXPECT_EQ(a->positions, 1024);
  EXPECT_TRUE(a->sequence_parallel);
  EXPECT_FALSE(a->fused_accumulation);
  EXPECT_FALSE(a->overlap_grad_reduce);
}

TEST(MegatronArguments, ExpertsAreDividedAsTheMatricesWhereNothingIsSaid) {
  const auto a = read_megatron_arguments(
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
      "--max-position-embeddings 128 --num-experts 8 --moe-router-topk 2 "
      "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 "
      "--moe-grouped-gemm --moe-token-dispatcher-type alltoall",
      "run.sh");
  ASSERT_TRUE(a) << a.error().to_string();
  EXPECT_EQ(a->experts, 8);
  EXPECT_EQ(a->experts_per_token, 2);
  EXPECT_EQ(a->expert_ffn, 256);
  EXPECT_EQ(a->expert_ranks, 4);
  EXPECT_EQ(a->expert_tensor_ranks, 2);
  EXPECT_TRUE(a->grouped_experts && a->sends_tokens);
}

constexpr std::string_view kSmall =
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    "--max-position-embeddings 128 ";

MegatronArguments small_with(const std::string& more) {
  const auto a = read_megatron_arguments(std::string(kSmall) + more, "run.sh");
  EXPECT_TRUE(a) << a.error().to_string();
  return a ? *a : MegatronArguments();
}

TEST(MegatronArguments, ASharedExpertIsReadBesideOthers) {
  const std::string shared = "--moe-shared-expert-intermediate-size 96 --moe-shared-expert-gate ";
  const MegatronArguments a = small_with(shared + "--num-experts 8");
  EXPECT_EQ(a.shared_expert_ffn, 96);
  EXPECT_TRUE(a.shared_expert_gate);
  EXPECT_FALSE(
      small_with("--moe-shared-expert-intermediate-size 96 --num-experts 8").shared_expert_gate);
  EXPECT_EQ(small_with(shared).shared_expert_ffn, 0);
}

TEST(MegatronArguments, ItsOwnModulesAndTheirSoftmaxAreRead) {
  const MegatronArguments local = small_with("--transformer-impl local");
  EXPECT_TRUE(local.local && local.fused_softmax);
  EXPECT_FALSE(local.softmax_in_float32 || local.scaled_softmax);
  const std::string softmax =
      "--no-masked-softmax-fusion --apply-query-key-layer-scaling "
      "--attention-softmax-in-fp32 ";
  const MegatronArguments plain = small_with(softmax + "--transformer-impl local");
  EXPECT_TRUE(!plain.fused_softmax && plain.scaled_softmax && plain.softmax_in_float32);
  const MegatronArguments other = small_with(softmax + "--transformer-impl transformer_engine");
  EXPECT_TRUE(!other.local && other.fused_softmax && !other.scaled_softmax);
}

// That of the activation that there is not is of no matter.
TEST(MegatronArguments, FusionsAreThoseOfWhatThereIs) {
  EXPECT_FALSE(small_with("--no-bias-gelu-fusion").fused_activation);
  EXPECT_TRUE(small_with("--no-bias-gelu-fusion --swiglu").fused_activation);
  EXPECT_TRUE(small_with("--no-bias-swiglu-fusion").fused_activation);
  EXPECT_FALSE(small_with("--no-bias-swiglu-fusion --swiglu").fused_activation);
  EXPECT_FALSE(small_with("").fused_loss);
  EXPECT_TRUE(small_with("--cross-entropy-loss-fusion").fused_loss);
  const std::string rope = "--position-embedding-type rope ";
  EXPECT_TRUE(small_with(rope + "--rotary-interleaved").fused_rotary);
  const MegatronArguments a = small_with(rope + "--rotary-interleaved --no-rope-fusion");
  EXPECT_TRUE(!a.fused_rotary && a.interleaved_rotary);
  EXPECT_FALSE(small_with(rope + "--no-rope-fusion --rotary-percent 1.0").fused_rotary);
  EXPECT_FALSE(small_with("--no-bias-dropout-fusion").fused_dropout_add);
}

TEST(MegatronArguments, APartOfAHeadIsTurned) {
  const std::string rope = "--position-embedding-type rope ";
  EXPECT_EQ(small_with(rope).rotary_percent, 1);
  EXPECT_EQ(small_with(rope + "--rotary-percent 0.5").rotary_percent, 0.5);
  EXPECT_EQ(small_with(rope + "--no-rope-fusion --rotary-percent 0.25").rotary_percent, 0.25);
  // Nothing is turned, so it is no matter.
  EXPECT_EQ(small_with("--rotary-percent 0.5").rotary_percent, 1);
  for (const char* const wrong : {"0", "1.5", "half"}) {
    const auto a =
        read_megatron_arguments(std::string(kSmall) + rope + "--rotary-percent " + wrong, "run.sh");
    EXPECT_FALSE(a) << wrong;
  }
  EXPECT_FALSE(read_megatron_arguments(
      std::string(kSmall) + rope + "--multi-latent-attention --rotary-percent 0.5", "run.sh"));
}

std::string message_of(std::string_view content) {
  const auto a = read_megatron_arguments(content, "run.sh");
  return a ? "" : a.error().message;
}

TEST(MegatronArguments, WhatExpertsHaveRoomForIsRead) {
  const std::string experts = "--num-experts 8 ";
  const MegatronArguments any = small_with(experts + "--moe-expert-capacity-factor -1");
  EXPECT_FALSE(any.expert_capacity || any.fills_capacity);
  const MegatronArguments filled =
      small_with(experts +
                 "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity "
                 "--moe-token-drop-policy position");
  EXPECT_EQ(filled.expert_capacity, 1.25);
  EXPECT_TRUE(filled.fills_capacity);
  EXPECT_TRUE(filled.unknown.empty());
  const std::string model = std::string(kSmall) + experts;
  EXPECT_EQ(message_of(model + "--moe-pad-expert-input-to-capacity"),
            "--moe-pad-expert-input-to-capacity without --moe-expert-capacity-factor");
  EXPECT_EQ(message_of(model + "--moe-expert-capacity-factor 0"),
            "--moe-expert-capacity-factor 0 is no multiple of an even part of the tokens");
  EXPECT_EQ(message_of(model + "--moe-expert-capacity-factor nan"),
            "--moe-expert-capacity-factor nan is no multiple of an even part of the tokens");
  EXPECT_EQ(message_of(model + "--moe-expert-capacity-factor 1 --moe-token-drop-policy random"),
            "--moe-token-drop-policy random is none");
}

TEST(MegatronArguments, NamesAreFoundThroughOtherNames) {
  const auto a = read_megatron_arguments(
      "TP=2\nTP_SIZE=${TP:-1}\nNODES=${SLURM_NNODES:-\"4\"}\nPP=${PP:-3}\n"
      "torchrun --nnodes $NODES --nproc-per-node gpu pretrain_gpt.py --num-layers 6 --hidden-size "
      "64 "
      "--num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 --made-up 1 "
      "--tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP --num-layers 9",
      "run.sh");
  ASSERT_TRUE(a) << a.error().to_string();
  EXPECT_EQ(a->tensor_ranks, 2);
  EXPECT_EQ(a->stages, 3);
  EXPECT_EQ(a->nodes, 4);
  EXPECT_EQ(a->ranks_per_node, std::nullopt);
  EXPECT_EQ(a->layers, 9);
  EXPECT_EQ(a->contradictions, std::vector<std::string>{"--num-layers (6, then 9)"});
  EXPECT_EQ(a->unknown, std::vector<std::string>{"--made-up"});
}

TEST(MegatronArguments, Fp8HasAFormatAndARecipe) {
  const auto read = [](const std::string& more) {
    return read_megatron_arguments(std::string(kSmall) + more, "run.sh");
  };
  EXPECT_EQ(read("")->fp8_format, "");
  EXPECT_EQ(read("--fp8-recipe tensorwise --first-last-layers-bf16")->fp8_format, "");
  const auto usual = read("--fp8-format hybrid");
  ASSERT_TRUE(usual) << usual.error().to_string();
  EXPECT_EQ(usual->fp8_format, "hybrid");
  EXPECT_EQ(usual->fp8_recipe, "delayed");
  EXPECT_EQ(usual->fp8_history, 1);
  const auto said = read(
      "--fp8-format e4m3 --fp8-recipe delayed --fp8-amax-history-len 1024 --fp8-margin 0 "
      "--fp8-amax-compute-algo max --moe-router-padding-for-fp8");
  ASSERT_TRUE(said) << said.error().to_string();
  EXPECT_EQ(said->fp8_history, 1024);
  EXPECT_TRUE(said->fp8_router_pads);
  EXPECT_EQ(said->unknown, std::vector<std::string>{});
  for (const char* recipe : {"tensorwise", "blockwise", "mxfp8"}) {
    EXPECT_EQ(read(std::string("--fp8-format e4m3 --fp8-recipe ") + recipe)->fp8_recipe, recipe);
  }
}

TEST(MegatronArguments, WhatIsNotModelledInFp8IsNamed) {
  const auto message = [](const std::string& more) {
    return message_of(std::string(kSmall) + "--fp8-format hybrid " + more);
  };
  EXPECT_EQ(message(""), "");
  EXPECT_EQ(message("--fp8-recipe custom"), "--fp8-recipe custom is not modelled");
  EXPECT_EQ(message_of(std::string(kSmall) + "--fp8-format e5m2"),
            "--fp8-format e5m2 is not modelled");
  for (const char* name : {"fp8-param-gather", "first-last-layers-bf16", "no-fp8-wgrad",
                           "fp8-output-proj", "reuse-grad-buf-for-mxfp8-param-ag"}) {
    EXPECT_EQ(message(std::string("--") + name),
              std::string("--") + name + " with --fp8-format is not modelled");
  }
  EXPECT_EQ(message("--transformer-impl local"),
            "--fp8-format with --transformer-impl local is not modelled");
}

TEST(MegatronArguments, WhatIsNotModelledOrNotKnownIsNamed) {
  const std::string model =
      "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
      "--max-position-embeddings 128 ";
  EXPECT_EQ(message_of(model), "");
  EXPECT_EQ(message_of(model + "--fp8 hybrid"), "--fp8 is not modelled");
  EXPECT_EQ(message_of(model + "--tensor-model-parallel-size $TP"),
            "--tensor-model-parallel-size is '$TP', which the file does not give");
  EXPECT_EQ(message_of(model + "--micro-batch-size 0"), "--micro-batch-size is '0'");
  EXPECT_EQ(message_of(model + "--micro-batch-size 99999999999999999999"),
            "--micro-batch-size is '99999999999999999999'");
  EXPECT_EQ(message_of("python pretrain_bert.py " + model),
            "starts pretrain_bert.py, whose steps are not modelled");
  EXPECT_EQ(message_of("python pretrain_gpt.py " + model), "");
  EXPECT_EQ(message_of("python pretrain_t5.py " + model),
            "starts pretrain_t5.py with no --decoder-num-layers");
  EXPECT_EQ(message_of(model + "--num-layers-per-virtual-pipeline-stage 1 "
                               "--num-virtual-stages-per-pipeline-rank 2"),
            "has --num-layers-per-virtual-pipeline-stage and "
            "--num-virtual-stages-per-pipeline-rank");
  EXPECT_EQ(message_of("--num-layers 2 --hidden-size 4 --num-attention-heads 4 --seq-length 128 "
                       "--max-position-embeddings 128 --swiglu"),
            "the hidden size is too small for an MLP with --swiglu");
  EXPECT_EQ(message_of(model + "--optimizer sgd"), "--optimizer sgd is not modelled");
  EXPECT_EQ(message_of(model + "--squared-relu"), "--squared-relu is not modelled");
  EXPECT_EQ(message_of(model + "--transformer-impl inference_optimized"),
            "--transformer-impl inference_optimized is not modelled");
  EXPECT_EQ(message_of(model + "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te"),
            "--cross-entropy-fusion-impl te is not modelled");
  EXPECT_EQ(message_of(model + "--num-experts 8 --swiglu --no-bias-swiglu-fusion"),
            "--no-bias-swiglu-fusion with --num-experts is not modelled");
  EXPECT_EQ(message_of(model + "--num-experts 8 --moe-shared-expert-overlap"),
            "--moe-shared-expert-overlap is not modelled");
  EXPECT_EQ(message_of(model + "--tensor-model-parallel-size $A A=$B B=$A").substr(0, 28),
            "--tensor-model-parallel-size");
  EXPECT_EQ(message_of("--num-layers 2 --hidden-size 64"), "has no --num-attention-heads");
  EXPECT_EQ(message_of(model + "--recompute-granularity selective"), "");
  EXPECT_EQ(message_of(model + "--recompute-granularity selective --recompute-modules mlp"),
            "--recompute-modules mlp is not modelled");
  // All of its words count, and no word of what comes behind.
  EXPECT_EQ(
      message_of(model + "--recompute-granularity selective --recompute-modules core_attn mlp "
                         "--bf16"),
      "--recompute-modules core_attn mlp is not modelled");
  EXPECT_EQ(message_of(model + "--recompute-granularity selective --recompute-modules core_attn\n"
                               "echo done"),
            "");
  EXPECT_EQ(message_of(model + "--recompute-granularity full --recompute-method block"),
            "--recompute-granularity full is not modelled");
}

}  // namespace
}  // namespace headroom::engines
