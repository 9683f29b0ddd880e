#include "fit/megatron/question.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fit/fit.h"

namespace headroom::fit {
namespace {

std::string script(const std::string& more) {
  return "python pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 "
         "--seq-length 512 --max-position-embeddings 512 --micro-batch-size 1 --vocab-size 1000 "
         "--bf16 " +
         more;
}

Result<FitQuestion> question(const std::string& more, std::optional<int64_t> gpus = {}) {
  FitQuestion asked;
  asked.device = "h100-sxm-80gb";
  asked.search = false;
  const auto arguments = engines::read_megatron_arguments(script(more), "run.sh");
  if (!arguments) return arguments.error();
  return megatron_question(asked, *arguments, "run.sh", gpus);
}

TEST(MegatronQuestion, GpusAreDividedAndWhatIsLeftIsDataParallel) {
  const auto q = question(
      "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 64", 16);
  ASSERT_TRUE(q) << q.error().to_string();
  EXPECT_EQ(q->megatron->data.data_ranks, 4);
  EXPECT_EQ(q->grad_accum, 16);
  EXPECT_EQ(q->ranks, 16);
  EXPECT_EQ(q->megatron->stage.rank.layers(), 4);
  // 1000 is padded to a multiple of 128 times the ranks that divide it.
  EXPECT_EQ(q->megatron->stage.model.padded_vocabulary, 1024);
}

TEST(MegatronQuestion, StagesMayHoldSeveralChunksOrUnevenOnes) {
  const std::string stages = "--pipeline-model-parallel-size 2 --global-batch-size 8 ";
  const auto chunks = question(stages + "--num-layers-per-virtual-pipeline-stage 2");
  ASSERT_TRUE(chunks) << chunks.error().to_string();
  EXPECT_EQ(chunks->megatron->stage.rank.chunk_layers, (std::vector<int64_t>{2, 2}));
  const auto uneven = question(stages + "--decoder-first-pipeline-num-layers 3");
  ASSERT_TRUE(uneven) << uneven.error().to_string();
  const auto answered = answer(*uneven);
  ASSERT_TRUE(answered) << answered.error().to_string();
  EXPECT_EQ(answered->stages[0].layers, 3);
  EXPECT_EQ(answered->stages[1].layers, 5);
  const auto layout = question(stages + "--pipeline-model-parallel-layout 'E|(tt|)*2tt,ttL'");
  ASSERT_TRUE(layout) << layout.error().to_string();
  EXPECT_EQ(layout->megatron->stage.rank.chunk_layers, (std::vector<int64_t>{0, 2}));
  const auto laid_out = answer(*layout);
  ASSERT_TRUE(laid_out) << laid_out.error().to_string();
  EXPECT_EQ(laid_out->stages[1].layers, 6);
  // Stage 0 warms up with 2 * 1 + 2 passes, and holds one more, of two chunks.
  EXPECT_EQ(laid_out->stages[0].in_flight, 2.5);
}

// is_kernel_available in fused_softmax.py: 16-bit types, and no more than 4096 keys.
TEST(MegatronQuestion, ItsOwnSoftmaxHasAKernelWhereItCan) {
  const auto peak = [](const std::string& more) {
    const auto q = question(
        "--transformer-impl local --no-create-attention-mask-in-dataloader "
        "--max-position-embeddings 8192 --hidden-size 128 " +
        more);
    EXPECT_TRUE(q) << q.error().to_string();
    const auto answered = answer(*q);
    EXPECT_TRUE(answered) << answered.error().to_string();
    return answered->memory.peak_allocated.count;
  };
  const std::string without = " --no-masked-softmax-fusion";
  EXPECT_LT(peak("--seq-length 4096"), peak("--seq-length 4096" + without));
  EXPECT_EQ(peak("--seq-length 4100"), peak("--seq-length 4100" + without));
  // Two heads and one sequence: not four rows.
  const std::string few = "--num-attention-heads 2 --seq-length 1024";
  EXPECT_EQ(peak(few), peak(few + without));
}

TEST(MegatronQuestion, FusionsAndSharedExpertsReachTheModel) {
  const auto model_of = [](const std::string& more) {
    const auto q = question(more);
    EXPECT_TRUE(q) << q.error().to_string();
    return q->megatron->stage.model;
  };
  EXPECT_TRUE(model_of("--cross-entropy-loss-fusion").compiled_loss);
  EXPECT_TRUE(model_of("--no-bias-gelu-fusion").plain_activation);
  const auto turned = model_of("--position-embedding-type rope --no-rope-fusion");
  EXPECT_TRUE(turned.plain_rotary && !turned.interleaved_rotary);
  EXPECT_EQ(turned.rotary_size, 0);
  const auto half = model_of("--position-embedding-type rope --rotary-percent 0.5");
  EXPECT_EQ(half.rotary_size, half.head_size / 2);
  EXPECT_TRUE(model_of("--no-bias-dropout-fusion").plain_dropout_add);
  const auto experts = model_of(
      "--disable-bias-linear --num-experts 4 --moe-grouped-gemm --transformer-impl local "
      "--moe-shared-expert-intermediate-size 64 --moe-shared-expert-gate");
  EXPECT_EQ(experts.shared_inner, 64);
  EXPECT_TRUE(experts.shared_gate && experts.local && !experts.grouped_experts);
  const auto rms = question("--transformer-impl local --normalization RMSNorm");
  ASSERT_TRUE(rms);
  const auto refused = answer(*rms);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("(local) with RMSNorm"), std::string::npos);
}

// Products in FP8 keep less for backward, and weights twice on a Hopper, once on a Blackwell.
TEST(MegatronQuestion, Fp8IsOfTheDevice) {
  const std::string fp8 = " --fp8-format hybrid --fp8-recipe ";
  const auto on = [&](const std::string& device, const std::string& more) {
    auto q = question(more);
    EXPECT_TRUE(q) << q.error().to_string();
    q->device = device;
    return answer(*q);
  };
  const auto between_steps = [&](const std::string& device, const std::string& more) {
    const auto answered = on(device, more);
    EXPECT_TRUE(answered) << answered.error().to_string();
    return answered ? static_cast<double>(answered->memory.steady_allocated.count) : 0;
  };
  constexpr double kWeights = 8.0 * 12 * 512 * 512;
  constexpr double kSmall = 65'536;  // scales, a block of the allocator each
  EXPECT_NEAR(
      between_steps("h100-sxm-80gb", fp8 + "tensorwise") - between_steps("h100-sxm-80gb", ""),
      2 * kWeights, kSmall);
  EXPECT_NEAR(
      between_steps("b200-sxm-180gb", fp8 + "tensorwise") - between_steps("b200-sxm-180gb", ""),
      kWeights, kSmall);
  for (const auto& [device, recipe] :
       {std::pair{"a100-sxm-80gb", "delayed"}, std::pair{"h100-sxm-80gb", "mxfp8"},
        std::pair{"b200-sxm-180gb", "blockwise"}}) {
    const auto refused = on(device, fp8 + recipe);
    ASSERT_FALSE(refused) << device << recipe;
    EXPECT_NE(refused.error().message.find(recipe), std::string::npos);
  }
}

// A step's products are priced by the device's rate of FP8, so that large ones take less.
TEST(MegatronQuestion, Fp8ProductsTakeLessTime) {
  const std::string large =
      "--hidden-size 8192 --num-attention-heads 64 --seq-length 4096 "
      "--max-position-embeddings 4096 --num-layers 1 ";
  const auto seconds = [&](const std::string& more) {
    const auto answered = answer(*question(large + more));
    EXPECT_TRUE(answered) << answered.error().to_string();
    return answered && answered->time ? answered->time->step_seconds.expected : 0;
  };
  const double plain = seconds("");
  const double fp8 = seconds("--fp8-format hybrid");
  EXPECT_GT(fp8, plain / 2);
  EXPECT_LT(fp8, plain);
}

TEST(MegatronQuestion, LatentAttentionIsRead) {
  const auto q = question(
      "--multi-latent-attention --q-lora-rank 96 --kv-lora-rank 64 --qk-head-dim 32 "
      "--qk-pos-emb-head-dim 16 --v-head-dim 32 --qk-layernorm --use-rotary-position-embeddings");
  ASSERT_TRUE(q) << q.error().to_string();
  const model::MegatronLatent& latent = q->megatron->stage.model.latent;
  EXPECT_EQ(latent, (model::MegatronLatent{96, 64, 32, 16, 32, true, true}));
  const auto answered = answer(*q);
  ASSERT_TRUE(answered) << answered.error().to_string();
  EXPECT_FALSE(q->megatron->stage.model.head_norms);
  const auto odd = question("--multi-latent-attention --qk-pos-emb-head-dim 15");
  EXPECT_TRUE(!odd || !answer(*odd));
  const auto wide = question("--multi-latent-attention --v-head-dim 2000000000");
  EXPECT_TRUE(!wide || !answer(*wide));
}

// The answer's own interval is what the answers at its ends say.
TEST(MegatronQuestion, APeakIsSaidAtEachShareOfTheExperts) {
  const std::string experts =
      "--num-experts 4 --moe-router-topk 1 --moe-grouped-gemm --disable-bias-linear ";
  const std::string divided =
      experts + "--expert-model-parallel-size 4 --seq-length 8192 --max-position-embeddings 8192";
  const auto q = question(divided, 4);
  ASSERT_TRUE(q) << q.error().to_string();
  const auto at = [&](const char* words) {
    FitQuestion asked = *q;
    if (words != nullptr) {
      EXPECT_TRUE(asked.set("expert-imbalance", words));
    }
    auto answered = answer(asked);
    EXPECT_TRUE(answered) << answered.error().to_string();
    return *answered;
  };
  const FitAnswer three = at("0.5:1:2");
  const auto& peak = three.memory.peak_allocated_interval;
  ASSERT_TRUE(peak);
  EXPECT_EQ(peak->low, at("0.5").memory.peak_allocated);
  EXPECT_EQ(peak->expected, three.memory.peak_allocated);
  EXPECT_EQ(peak->high, at("2").memory.peak_allocated);
  EXPECT_LT(peak->low, peak->expected);
  EXPECT_LT(peak->expected, peak->high);
  EXPECT_EQ(setting_of(three.settings, "expert-imbalance"), "0.5:1:2");
  EXPECT_FALSE(at("1").memory.peak_allocated_interval);
  // Where nobody says it, there is one, too.
  const FitAnswer standard = at(nullptr);
  ASSERT_TRUE(standard.memory.peak_allocated_interval);
  EXPECT_EQ(setting_of(standard.settings, "expert-imbalance"), "0.89:1:1.07");
}

// Nor where a rank has all experts, and so gets all tokens whatever the router does.
TEST(MegatronQuestion, WhereNoRouterDecidesThereIsOnePeak) {
  const std::string all_experts = "--num-experts 4 --moe-grouped-gemm --disable-bias-linear";
  for (const std::string& more : {std::string(), all_experts}) {
    auto asked = question(more);
    ASSERT_TRUE(asked) << asked.error().to_string();
    const auto answered = answer(*asked);
    ASSERT_TRUE(answered) << answered.error().to_string();
    EXPECT_FALSE(answered->memory.peak_allocated_interval);
    EXPECT_EQ(setting_of(answered->settings, "expert-imbalance"), "");
    ASSERT_TRUE(asked->set("expert-imbalance", "0.5"));
    const auto halved = answer(*asked);
    ASSERT_FALSE(halved);
    EXPECT_EQ(halved.error().where, "--expert-imbalance");
  }
}

// Nor where experts are filled up to what they have room for.
TEST(MegatronQuestion, ExpertsThatAreFilledUpAreNotImbalanced) {
  const std::string divided =
      "--num-experts 4 --moe-router-topk 1 --moe-grouped-gemm --disable-bias-linear "
      "--expert-model-parallel-size 4 --moe-expert-capacity-factor 1.5 ";
  const auto dropped = answer(*question(divided, 4));
  ASSERT_TRUE(dropped) << dropped.error().to_string();
  EXPECT_TRUE(dropped->memory.peak_allocated_interval);
  EXPECT_EQ(setting_of(dropped->settings, "moe-expert-capacity-factor"), "1.5");
  auto filled = question(divided + "--moe-pad-expert-input-to-capacity", 4);
  ASSERT_TRUE(filled) << filled.error().to_string();
  const auto answered = answer(*filled);
  ASSERT_TRUE(answered) << answered.error().to_string();
  EXPECT_FALSE(answered->memory.peak_allocated_interval);
  EXPECT_EQ(setting_of(answered->settings, "moe-pad-expert-input-to-capacity"), "true");
  ASSERT_TRUE(filled->set("expert-imbalance", "1.2"));
  const auto refused = answer(*filled);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("has room for"), std::string::npos)
      << refused.error().to_string();
}

// A parameter for each part of a head, shared by all heads of a layer; their inputs are kept.
TEST(MegatronQuestion, NormsOfHeadsAreRead) {
  const auto plain = question("--normalization RMSNorm");
  const auto normed = question("--normalization RMSNorm --qk-layernorm");
  ASSERT_TRUE(plain && normed) << (normed ? "" : normed.error().to_string());
  const model::MegatronModel& m = normed->megatron->stage.model;
  EXPECT_TRUE(m.head_norms);
  const auto more = megatron_parameters(*normed->megatron);
  const auto less = megatron_parameters(*plain->megatron);
  ASSERT_TRUE(more && less);
  EXPECT_EQ(*more - *less, m.layers * 2 * m.head_size);
  const auto with = answer(*normed);
  const auto without = answer(*plain);
  ASSERT_TRUE(with && without);
  EXPECT_GT(with->memory.peak_allocated, without->memory.peak_allocated);
}

TEST(MegatronQuestion, AnEncoderAndADecoderAreRead) {
  const auto arguments = engines::read_megatron_arguments(
      "python pretrain_t5.py --encoder-num-layers 4 --decoder-num-layers 2 --hidden-size 512 "
      "--num-attention-heads 8 --encoder-seq-length 512 --decoder-seq-length 128 "
      "--max-position-embeddings 512 --vocab-size 1000 --vocab-extra-ids 100 --bf16",
      "run.sh");
  ASSERT_TRUE(arguments) << arguments.error().to_string();
  FitQuestion asked;
  asked.device = "h100-sxm-80gb";
  asked.search = false;
  const auto q = megatron_question(asked, *arguments, "run.sh", {});
  ASSERT_TRUE(q) << q.error().to_string();
  const auto answered = answer(*q);
  ASSERT_TRUE(answered) << answered.error().to_string();
  FitQuestion recomputed = *q;
  recomputed.checkpointing.kind = CheckpointingKind::full;
  const auto given = answer(recomputed);
  EXPECT_TRUE(given) << given.error().to_string();
  // Tables, 12 hh + 13 h a layer, 4 hh + 6 h more with cross attention, a norm behind each stack;
  // the head's bias.
  const int64_t h = 512;
  const int64_t vocabulary = 1152;
  EXPECT_EQ(answered->parameter_count, vocabulary * h + 512 * h + 6 * (12 * h * h + 13 * h) +
                                           2 * (4 * h * h + 6 * h) + 4 * h + vocabulary);
}

TEST(MegatronQuestion, AStageOrAChunkMayHoldNoLayer) {
  for (const char* more :
       {"--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout 'Ett||ttttttL'",
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Ett||tt|ttttL' "
        "--global-batch-size 4",
        "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'E||tttttttt|L'",
        "--pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 8"}) {
    const auto q = question(more);
    ASSERT_TRUE(q) << q.error().to_string();
    const auto answered = answer(*q);
    ASSERT_TRUE(answered) << answered.error().to_string();
    EXPECT_GT(answered->stages[1].peak_allocated.count, 0) << more;
  }
}

TEST(MegatronQuestion, StagesBeyondCountAreRefusedBeforeTheyAreRun) {
  const auto many = question(
      "--num-layers 1024 --pipeline-model-parallel-size 1024 --decoder-first-pipeline-num-layers "
      "1024 --num-virtual-stages-per-pipeline-rank 1024");
  EXPECT_FALSE(many);
  EXPECT_FALSE(question("--num-layers 512 --pipeline-model-parallel-size 512"));
}

// What stages wait for each other does not depend on how many micro-batches there are.
TEST(MegatronQuestion, WaitingOfAPipelineIsOfOneMicroBatchPerStage) {
  const auto time = [](const char* batch) {
    const auto q = question("--pipeline-model-parallel-size 4 --nodes 1 --global-batch-size " +
                            std::string(batch));
    const auto answered = answer(*q);
    EXPECT_TRUE(answered && answered->time);
    return *answered->time;
  };
  const StepTime one = time("1");
  const StepTime two = time("2");
  const StepTime eight = time("8");
  EXPECT_LT(one.step_seconds.expected, two.step_seconds.expected);
  EXPECT_LT(two.step_seconds.expected, eight.step_seconds.expected);
  EXPECT_NEAR(one.pipeline_seconds, eight.pipeline_seconds, 0.1 * eight.pipeline_seconds);
}

// Of the file it is named after, which may be called anything: nothing of it is run.
TEST(MegatronQuestion, AFileIsNoPythonFunction) {
  const auto arguments = engines::read_megatron_arguments(script(""), "gpt.py:build");
  FitQuestion asked;
  asked.device = "h100-sxm-80gb";
  const auto q = megatron_question(asked, *arguments, "gpt.py:build", {});
  ASSERT_TRUE(q) << q.error().to_string();
  const auto scenario = resolve(*q);
  ASSERT_TRUE(scenario) << scenario.error().to_string();
  EXPECT_EQ(scenario->traced, nullptr);
}

// Learned from published steps, of which half the models were held out: a stage's and a pipeline's.
// Of so small a model another host moves it further.
TEST(MegatronQuestion, ItsStepTimeHasTheIntervalOfPublishedSteps) {
  const timing::TimingModel model = timing::TimingModel::built_in();
  const timing::InStep* residual = model.in_step(timing::kMegatronTraining);
  ASSERT_TRUE(residual != nullptr && residual->whole_steps);
  const double above = std::exp(residual->half_width_on("h100-sxm-80gb"));
  for (const char* more : {"", "--pipeline-model-parallel-size 2 --global-batch-size 4"}) {
    const auto answered = answer(*question(more));
    ASSERT_TRUE(answered && answered->time) << more;
    const SecondsInterval& step = answered->time->step_seconds;
    EXPECT_GT(step.high / step.expected, above) << more;
    EXPECT_LT(step.low / step.expected, 1 / above) << more;
    EXPECT_LT(step.high / step.expected, 2.01 * above) << more;
    EXPECT_GT(step.low / step.expected, 0.99 / (2 * above)) << more;
    const std::string held_out = "held out were " + std::to_string(residual->whole_steps->aside);
    int64_t notes = 0;
    for (const std::string& note : answered->notes) {
      notes += note.find(held_out) != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(notes, 1) << more;
  }
}

TEST(MegatronQuestion, ChunksNeedMicroBatchesInGroupsOfStages) {
  const auto q = question(
      "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
      "--global-batch-size 3");
  EXPECT_FALSE(q);
}

TEST(MegatronQuestion, WhatDoesNotDivideOrIsBeyondCountIsAnError) {
  for (const char* more :
       {"--tensor-model-parallel-size 2147483648 --pipeline-model-parallel-size 2147483648 "
        "--context-parallel-size 4",
        "--pipeline-model-parallel-size 3", "--global-batch-size 3 --micro-batch-size 2",
        "--num-distributed-optimizer-instances 3", "--num-layers 2147483648",
        "--hidden-size 2147483648 --kv-channels 64",
        "--seq-length 511 --sequence-parallel "
        "--tensor-model-parallel-size 2",
        "--seq-length 1024"}) {
    const auto q = question(more);
    const auto answered = q ? answer(*q) : Result<FitAnswer>(q.error());
    EXPECT_FALSE(answered) << more;
  }
  const auto many = question("--nproc-per-node 2147483648 --nnodes 2147483648");
  EXPECT_TRUE(!many || many->ranks <= 65'536);
}

// Bytes a parameter between steps, by docs/user-guide/features/dist_optimizer.md of Megatron-LM;
// what is not trained lies beneath its tolerance.
double bytes_per_parameter(const std::string& more, std::optional<int64_t> gpus = {}) {
  const auto q = question("--hidden-size 4096 --num-attention-heads 32 " + more, gpus);
  const auto answered = answer(*q);
  EXPECT_TRUE(answered);
  return static_cast<double>(answered->memory.steady_allocated.count - (int64_t{68} << 20)) /
         static_cast<double>(answered->parameter_count);
}

TEST(MegatronQuestion, EachPrecisionTakesWhatItsManualSays) {
  constexpr double kTolerance = 0.1;
  const std::string shared = " --use-distributed-optimizer";
  EXPECT_NEAR(bytes_per_parameter(""), 18, kTolerance);
  EXPECT_NEAR(bytes_per_parameter(shared, 8), 6 + 12.0 / 8, kTolerance);
  EXPECT_NEAR(bytes_per_parameter("--bf16 false --fp16"), 20, kTolerance);
  EXPECT_NEAR(bytes_per_parameter("--bf16 false --fp16" + shared, 8), 4 + 16.0 / 8, kTolerance);
  EXPECT_NEAR(bytes_per_parameter("--bf16 false"), 16, kTolerance);
  EXPECT_NEAR(bytes_per_parameter("--bf16 false" + shared, 8), 8 + 8.0 / 8, kTolerance);
  EXPECT_NEAR(bytes_per_parameter("--grad-reduce-in-bf16"), 20, kTolerance);
}

TEST(MegatronQuestion, ManyMicroBatchesAskForNoMoreThanAFew) {
  const auto few = answer(*question("--global-batch-size 16"));
  const auto many = answer(*question("--global-batch-size 1000000"));
  ASSERT_TRUE(few && many);
  EXPECT_EQ(few->memory.peak_reserved, many->memory.peak_reserved);
}

}  // namespace
}  // namespace headroom::fit
