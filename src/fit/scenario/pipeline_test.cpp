#include "fit/scenario/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fit/fit.h"
#include "fit/stages.h"

namespace headroom::fit {
namespace {

FitQuestion question_of(const std::string& method, const std::string& schedule = "1f1b",
                        const std::string& micro_batches = "8") {
  FitQuestion question;
  question.model = "meta-llama/Llama-3.2-1B";
  question.device = "a100-sxm-80gb";
  question.search = false;
  EXPECT_TRUE(question.set("method", method));
  EXPECT_TRUE(question.set("pipeline-schedule", schedule));
  EXPECT_TRUE(question.set("grad-accum", micro_batches));
  return question;
}

FitAnswer answer_of(const FitQuestion& question) {
  auto answered = answer(question);
  EXPECT_TRUE(answered) << answered.error().to_string();
  return answered ? std::move(*answered) : FitAnswer{};
}

bool has_note(const FitAnswer& answer, const std::string& words) {
  return std::ranges::any_of(
      answer.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

std::string refusal_of(const FitQuestion& question) {
  const auto answered = answer(question);
  return answered ? "" : answered.error().to_string();
}

TEST(PipelineScenario, TheAnswerIsAboutTheFullestStageAndTheWholeModel) {
  const FitAnswer one = answer_of(question_of("full"));
  const FitAnswer staged = answer_of(question_of("pp:4"));
  ASSERT_EQ(staged.stages.size(), 4U);
  EXPECT_EQ(staged.parameter_count, one.parameter_count);
  EXPECT_EQ(staged.device.count, 4);
  Bytes most{};
  int64_t layers = 0;
  for (const StageFigures& stage : staged.stages) {
    most = std::max(most, stage.device_used.expected);
    layers += stage.layers;
  }
  EXPECT_EQ(staged.memory.device_used.expected, most);
  EXPECT_EQ(layers, 16);
}

TEST(PipelineScenario, StagesHaveTheLayersThatAreSaid) {
  const auto layers_of = [](const FitAnswer& answer) {
    std::vector<int64_t> layers;
    for (const StageFigures& stage : answer.stages) layers.push_back(stage.layers);
    return layers;
  };
  FitQuestion question = question_of("pp:4");
  const FitAnswer shared = answer_of(question);
  ASSERT_TRUE(question.set("stage-layers", "4,5,4,3"));
  const FitAnswer as_shared = answer_of(question);
  EXPECT_EQ(layers_of(as_shared), layers_of(shared));
  EXPECT_EQ(as_shared.memory.peak_allocated, shared.memory.peak_allocated);
  ASSERT_TRUE(question.set("stage-layers", "0,7,7,2"));
  const FitAnswer said = answer_of(question);
  EXPECT_EQ(layers_of(said), (std::vector<int64_t>{0, 7, 7, 2}));
  EXPECT_GT(said.stages[1].peak_allocated, shared.stages[1].peak_allocated);
  // Chunks of a stage lie a round apart, or mirrored.
  FitQuestion chunks = question_of("pp:2,vpp:2");
  ASSERT_TRUE(chunks.set("stage-layers", "1,6,7,2"));
  EXPECT_EQ(layers_of(answer_of(chunks)), (std::vector<int64_t>{8, 8}));
  FitQuestion mirrored = question_of("pp:2", "zbv");
  ASSERT_TRUE(mirrored.set("stage-layers", "1,6,7,2"));
  EXPECT_EQ(layers_of(answer_of(mirrored)), (std::vector<int64_t>{3, 13}));
}

TEST(PipelineScenario, LayersThatAreNotTheModelsAreRefused) {
  const auto refused = [](const std::string& method, const std::string& layers) {
    FitQuestion question = question_of(method);
    EXPECT_TRUE(question.set("stage-layers", layers));
    return refusal_of(question);
  };
  EXPECT_NE(refused("pp:4", "5,4,4,4").find("17 layers, and the model has 16"), std::string::npos);
  EXPECT_NE(refused("pp:4", "8,8").find("2 parts, and the method has 4"), std::string::npos);
  EXPECT_NE(refused("pp:4", "8,0,4,4").find("has no layers"), std::string::npos);
  EXPECT_NE(refused("lora,pp:4", "0,8,4,4").find("no layers to adapt"), std::string::npos);
  EXPECT_NE(refused("full", "16").find("nothing is cut"), std::string::npos);
  FitQuestion question;
  for (const char* words : {"", "4,", "4,x", "-1,5", "1,99999999999999999999"}) {
    EXPECT_FALSE(question.set("stage-layers", words)) << words;
  }
}

TEST(PipelineScenario, AModelOfTextAndImagesIsCutWhereItsLanguageModelsLayersAre) {
  FitQuestion question = question_of("full");
  question.model = "google/gemma-3-4b-it";
  const FitAnswer one = answer_of(question);
  ASSERT_TRUE(question.set("method", "pp:2"));
  const FitAnswer staged = answer_of(question);
  ASSERT_EQ(staged.stages.size(), 2U);
  EXPECT_EQ(staged.stages[0].layers + staged.stages[1].layers, 34);
  EXPECT_EQ(staged.parameter_count, one.parameter_count);
}

TEST(PipelineScenario, SchedulesHoldAsManyMicroBatchesAsTheyShould) {
  const auto in_flight = [](const std::string& schedule) {
    std::vector<double> held;
    for (const StageFigures& stage : answer_of(question_of("pp:4", schedule)).stages) {
      held.push_back(stage.in_flight);
    }
    return held;
  };
  EXPECT_EQ(in_flight("1f1b"), (std::vector<double>{4, 3, 2, 1}));
  EXPECT_EQ(in_flight("zero-bubble"), (std::vector<double>{4, 4, 4, 4}));
  EXPECT_EQ(in_flight("gpipe"), (std::vector<double>{8, 8, 8, 8}));
  EXPECT_EQ(in_flight("zbv"), (std::vector<double>{4, 4, 4, 4}));
  EXPECT_EQ(in_flight("dualpipev"), (std::vector<double>{4.5, 4.5, 4.5, 4.5}));
}

// The first stage has the model's beginning and its end, and so the logits that are returned.
TEST(PipelineScenario, MirroredPartsAreTwoAStageAndTheFirstHasBothEnds) {
  const FitAnswer two = answer_of(question_of("pp:4", "zbv"));
  EXPECT_EQ(two.stages[0].peak_allocated,
            answer_of(question_of("pp:4,vpp:2", "zbv")).stages[0].peak_allocated);
  FitQuestion returning = question_of("pp:4", "zbv");
  ASSERT_TRUE(returning.set("keep-outputs", "true"));
  const FitAnswer returned = answer_of(returning);
  EXPECT_GT(returned.stages[0].peak_allocated, two.stages[0].peak_allocated);
  EXPECT_EQ(returned.stages[3].peak_allocated, two.stages[3].peak_allocated);
  EXPECT_NE(refusal_of(question_of("pp:2,vpp:3", "zbv")).find("vpp:2"), std::string::npos);
  EXPECT_NE(refusal_of(question_of("pp:4", "dualpipev", "7")).find("--grad-accum 8"),
            std::string::npos);
  FitQuestion compiled = question_of("pp:4", "dualpipev");
  ASSERT_TRUE(compiled.set("compile", "layers"));
  EXPECT_NE(refusal_of(compiled).find("--pipeline-schedule 1f1b"), std::string::npos);
}

// What is sent is held to the step's end, also that of micro-batches that are not run one by one.
TEST(PipelineScenario, AFewMicroBatchesTakeWhatAllOfThemDo) {
  for (const auto& [method, schedule] :
       std::vector<std::pair<std::string, std::string>>{{"pp:2", "1f1b"},
                                                        {"pp:2,vpp:2", "1f1b"},
                                                        {"pp:2", "zero-bubble"},
                                                        {"pp:2", "zbv"},
                                                        {"pp:2", "dualpipev"}}) {
    for (const int64_t stage : {0, 1}) {
      const FitQuestion question = at_stage(question_of(method, schedule, "14"), stage);
      const Scenario few = resolve(question).value();
      ASSERT_LT(few.train.accumulation, 14);
      Scenario all = few;
      all.train.accumulation = 14;
      // But for each one's loss, and where the peak falls; a send is four MiB.
      EXPECT_NEAR(static_cast<double>(predict(few)->peak_allocated.count),
                  static_cast<double>(predict(all)->peak_allocated.count),
                  static_cast<double>(kMiB))
          << method << " " << schedule << " " << stage;
    }
  }
}

// Passes of a compiled stage are alike, too, so that a few tell the time of many.
TEST(PipelineScenario, CompiledStagesHaveATime) {
  FitQuestion question = question_of("pp:4");
  ASSERT_TRUE(question.set("compile", "layers"));
  const FitAnswer compiled = answer_of(question);
  const FitAnswer eager = answer_of(question_of("pp:4"));
  ASSERT_TRUE(compiled.time && eager.time);
  EXPECT_LT(compiled.time->step_seconds.expected, eager.time->step_seconds.expected);
}

// Of the whole model, however its products and layers are divided.
TEST(PipelineScenario, ParametersAreTheWholeModels) {
  const int64_t whole = answer_of(question_of("full")).parameter_count;
  for (const char* method : {"tp:2", "fsdp2:2,tp:2", "fsdp2:2,tp:2,pp:4"}) {
    FitQuestion question = question_of(method);
    ASSERT_TRUE(question.set("sequence-parallel", "true"));
    EXPECT_EQ(answer_of(question).parameter_count, whole) << method;
    EXPECT_EQ(answer_of(question).trainable_count, whole) << method;
  }
}

// Each rank passes its part of the sequence on.
TEST(PipelineScenario, StagesOfTensorParallelRanksPassPartsOn) {
  FitQuestion question = question_of("fsdp2:2,tp:2,pp:4");
  EXPECT_NE(refusal_of(question).find("--sequence-parallel true"), std::string::npos);
  ASSERT_TRUE(question.set("sequence-parallel", "true"));
  const auto buffers = [](FitQuestion asked) {
    const auto peak = [&](const char* micro_batches) {
      EXPECT_TRUE(asked.set("grad-accum", micro_batches));
      return answer_of(asked).stages[1].peak_allocated.count;
    };
    return peak("64") - peak("32");
  };
  EXPECT_EQ(2 * buffers(question), buffers(question_of("fsdp2:2,pp:4")));
}

TEST(PipelineScenario, MoreMicroBatchesCostOneStageBuffersAndGPipeActivations) {
  const auto peak = [](const std::string& schedule, const std::string& micro_batches) {
    return answer_of(question_of("pp:4", schedule, micro_batches)).stages[1].peak_allocated.count;
  };
  // Two bytes for each of 1,024 tokens of 2,048 numbers, each way.
  constexpr int64_t kBuffers = 2 * 2 * 1024 * 2048;
  EXPECT_EQ(peak("1f1b", "64") - peak("1f1b", "32"), 32 * kBuffers);
  EXPECT_GT(peak("gpipe", "64") - peak("gpipe", "32"), 32 * 10 * kBuffers);
}

TEST(PipelineScenario, WaitingIsLessWithChunksAndWithoutBubbles) {
  const auto waits = [](const std::string& method, const std::string& schedule) {
    return answer_of(question_of(method, schedule)).time->pipeline_seconds;
  };
  EXPECT_LT(waits("pp:4,vpp:2", "1f1b"), waits("pp:4", "1f1b"));
  EXPECT_LT(waits("pp:4", "zero-bubble"), waits("pp:4", "1f1b"));
  EXPECT_LT(waits("pp:4", "zbv"), waits("pp:4,vpp:2", "zero-bubble"));
}

// Within a stage fully_shard shares what is trained; mixed precision is its own.
TEST(PipelineScenario, StagesMayBeShared) {
  const auto after_step = [](const std::string& method) {
    return answer_of(question_of(method)).memory.steady_allocated.count;
  };
  EXPECT_LT(after_step("fsdp2:2,pp:4"), 0.6 * static_cast<double>(after_step("pp:4")));
  FitQuestion mixed = question_of("fsdp2:2,pp:4");
  ASSERT_TRUE(mixed.set("mixed-precision", "bf16"));
  EXPECT_EQ(answer_of(mixed).device.count, 8);
  EXPECT_NE(refusal_of(question_of("ddp:2,pp:4")).find("fsdp2:N"), std::string::npos);
  EXPECT_EQ(division_words(question_of("fsdp2:2,pp:4,vpp:2")), ",fsdp2:2,pp:4,vpp:2");
}

TEST(PipelineScenario, OfLoraOnlyTheAdaptersHaveGradientsAndStates) {
  const auto between_steps = [](const std::string& method) {
    return answer_of(question_of(method)).memory.steady_allocated.count;
  };
  EXPECT_LT(2 * between_steps("lora,pp:4"), between_steps("pp:4"));
}

// Weights of four bits, and what is cast to float32 beside them, lie on one stage each; the weight
// that embedding and head share on both.
TEST(PipelineScenario, TwoStagesOfQloraHoldTheWholeModelAndTheSharedWeightAgain) {
  const auto between_steps = [](const std::string& method) {
    return answer_of(question_of(method)).memory.steady_allocated.count;
  };
  constexpr int64_t kShared = int64_t{128'256} * 2048 * 4;
  constexpr int64_t kWorkspaceAndBuffers = int64_t{128} << 20;
  const int64_t more = 2 * between_steps("qlora,pp:2") - between_steps("qlora");
  EXPECT_GE(more, kShared);
  EXPECT_LE(more, kShared + kWorkspaceAndBuffers);
  EXPECT_TRUE(has_note(answer_of(question_of("qlora,pp:2")), "no run of both"));
}

TEST(PipelineScenario, ChunksMayBeShared) {
  const auto peak = [](const std::string& method, const std::string& schedule) {
    const FitAnswer answered = answer_of(question_of(method, schedule));
    EXPECT_TRUE(answered.time.has_value()) << method << schedule;
    return answered.memory.peak_allocated.count;
  };
  for (const char* schedule : {"1f1b", "zero-bubble"}) {
    EXPECT_LT(peak("fsdp2:4,pp:2,vpp:2", schedule), peak("pp:2,vpp:2", schedule));
  }
  EXPECT_LT(peak("fsdp2:4,pp:4", "zero-bubble"), peak("pp:4", "zero-bubble"));
}

// One rank's own share is copied to be used; nothing is sent for it, and micro-batches are alike.
TEST(PipelineScenario, AStageMayBeShardedAmongOneRank) {
  for (const std::string parts : {"", ",vpp:2"}) {
    const FitAnswer alone = answer_of(question_of("fsdp2:1,pp:2" + parts));
    EXPECT_TRUE(alone.time.has_value()) << parts;
    EXPECT_GT(alone.memory.breakdown[Component::gathered].count, 0);
    EXPECT_GT(alone.memory.peak_allocated,
              answer_of(question_of("pp:2" + parts)).memory.peak_allocated);
    EXPECT_EQ(alone.memory.steady_allocated,
              answer_of(question_of("pp:2" + parts)).memory.steady_allocated);
  }
}

TEST(PipelineScenario, OutputsOfSeveralChunksMayBeKept) {
  for (const char* method : {"pp:2,vpp:2", "fsdp2:2,pp:2,vpp:4"}) {
    FitQuestion question = question_of(method, "1f1b", "4");
    ASSERT_TRUE(question.set("keep-outputs", "true"));
    const int64_t kept = answer_of(question).memory.peak_allocated.count;
    EXPECT_GT(kept, answer_of(question_of(method, "1f1b", "4")).memory.peak_allocated.count);
  }
}

TEST(PipelineScenario, WhatIsNotKnownOfChunksIsSaid) {
  const FitAnswer many = answer_of(question_of("fsdp2:2,pp:2,vpp:4", "1f1b", "16"));
  EXPECT_FALSE(many.time.has_value());
  EXPECT_TRUE(has_note(many, "of stage 0, its micro-batches are not alike"));
  FitQuestion older = question_of("fsdp2:2,pp:2,vpp:2");
  EXPECT_FALSE(has_note(answer_of(older), "earlier ones were not read"));
  ASSERT_TRUE(older.set("torch", "2.6"));
  EXPECT_TRUE(has_note(answer_of(older), "earlier ones were not read"));
}

// test_fsdp holds the order of gathers against PyTorch's.
TEST(PipelineScenario, SharesOfAStageWithAdaptersAreSmallerThanTheStage) {
  const auto between_steps = [](const std::string& method) {
    return answer_of(question_of(method)).memory.steady_allocated.count;
  };
  EXPECT_LT(between_steps("lora,fsdp2:4,pp:2"), between_steps("lora,pp:2") / 2);
}

// A stage is a model of its own to peft. The head is the last stage's; in a model whose embedding
// has the head's weight it is adapted nowhere.
TEST(PipelineScenario, AStageWithoutModulesToAdaptIsRefusedByItsNumber) {
  const auto refusal = [](const std::string& model, const std::string& targets) {
    FitQuestion question = question_of("lora,pp:2");
    question.model = model;
    EXPECT_TRUE(question.set("lora-targets", targets));
    return refusal_of(question);
  };
  const std::string untied = "meta-llama/Llama-3.1-8B";
  EXPECT_EQ(refusal(untied, "lm_head"),
            "--lora-targets: lm_head is on stage 1 alone (the first is 0), and peft takes no stage "
            "without a module to adapt, as stage 0 would be (name a module that every stage has "
            "beside it: --lora-targets q_proj,v_proj,lm_head)");
  EXPECT_EQ(refusal(untied, "q_proj,v_proj,lm_head"), "");
  EXPECT_NE(refusal(untied, "layers.0.self_attn.q_proj").find("is on stage 0 alone"),
            std::string::npos);
  EXPECT_NE(refusal(untied, "nothing").find("no linear module"), std::string::npos);
  for (const char* const targets : {"lm_head", "q_proj,lm_head"}) {
    EXPECT_NE(refusal("meta-llama/Llama-3.2-1B", targets).find("weight from"), std::string::npos);
  }
}

TEST(PipelineScenario, WhatIsNotModelledIsRefusedByName) {
  const auto with = [](const std::string& flag, const std::string& words, FitQuestion question) {
    EXPECT_TRUE(question.set(flag, words));
    return refusal_of(question);
  };
  const FitQuestion plain = question_of("pp:4");
  EXPECT_NE(with("mixed-precision", "bf16", plain).find("fully_shard"), std::string::npos);
  EXPECT_NE(with("method", "lora-8bit,pp:4", plain).find("8 bits"), std::string::npos);
  EXPECT_NE(with("method", "lora,pp:17", plain).find("no layers to adapt"), std::string::npos);
  const auto unknown = FitQuestion().set("method", "pq:4");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().to_string().find("'pp'"), std::string::npos);
  EXPECT_NE(with("method", "pp:20", plain).find("too few"), std::string::npos);
  EXPECT_NE(with("grad-accum", "70000", plain).find("65536"), std::string::npos);
  EXPECT_NE(with("grad-accum", "3", plain).find("--grad-accum 4"), std::string::npos);
  EXPECT_FALSE(FitQuestion().set("method", "vpp:2"));
  EXPECT_NE(with("checkpointing", "full", question_of("pp:4", "zero-bubble")).find("run again"),
            std::string::npos);
  EXPECT_NE(refusal_of(question_of("pp:4", "gpipe", "257")).find("256"), std::string::npos);
  EXPECT_NE(with("offload", "optimizer", plain).find("offload"), std::string::npos);
  EXPECT_NE(refusal_of(question_of("pp:4,vpp:2", "gpipe")).find("vpp"), std::string::npos);
}

}  // namespace
}  // namespace headroom::fit
