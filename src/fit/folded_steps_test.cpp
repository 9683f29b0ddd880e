// Steps whose layers were folded against steps whose layers were all run, field by field: a model
// of every family, under settings drawn at random from all that change what a step does.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "fit/one_of_each_family.h"
#include "fit/prediction.h"
#include "fit/scenario/graph.h"
#include "fit/scenario/scenario.h"
#include "step/trace_equality.h"

namespace headroom::fit {
namespace {

struct Choice {
  const char* flag;
  std::vector<const char*> values;  // the first is what nobody asked for
};

const std::vector<Choice>& choices() {
  static const std::vector<Choice> kChoices = {
      {"batch", {"1", "2", "3"}},
      {"seq", {"64", "24", "128"}},
      {"attention", {"auto", "eager", "flash2", "sdpa-math"}},
      {"checkpointing", {"none", "full", "every-2", "every-3", "selective"}},
      {"compile", {"none", "layers", "loss", "layers,loss"}},
      {"method", {"full", "lora", "qlora", "lora-8bit"}},
      {"checkpointing-kind", {"", "reentrant"}},
      {"lora-targets", {"", "all-linear"}},
      {"optimizer",
       {"adamw", "adamw-fused", "adamw-loop", "adam", "sgd", "sgd-momentum", "adafactor",
        "hf-adafactor", "lion", "adamw-8bit", "paged-adamw-8bit", "paged-adamw", "ademamix-8bit"}},
      {"kernels", {"none", "liger", "fast"}},
      {"loss", {"auto", "fused-linear", "chunked"}},
      {"keep-outputs", {"false", "true"}},
      {"accelerate", {"true", "false"}},
      {"grad-accum", {"1", "2", "3"}},
      {"clip", {"", "1"}},
      {"mixed-precision", {"none", "bf16"}},
      {"freeze", {"", "embed_tokens", "layers.0-1"}},
      {"offload", {"none", "optimizer"}},
      {"transformers", {"", "4.46", "4.40"}},
      {"torch", {"", "2.4"}},
  };
  return kChoices;
}

TEST(FoldedSteps, AreWhatRunningEveryLayerWrites) {
  std::mt19937 random(20);
  int compared = 0;
  int folded = 0;
  for (const std::string& name : one_of_each_family()) {
    FitQuestion first;
    first.model = name;
    first.device = "a100-sxm-80gb";
    first.batch = 1;
    first.seq = 64;
    const auto scenario = resolve(first);
    ASSERT_TRUE(scenario) << scenario.error().to_string();
    for (int round = 0; round < 8; ++round) {
      FitQuestion question = first;
      std::string asked = name;
      for (const Choice& choice : choices()) {
        // Mostly as nobody asked, so that most combinations are possible.
        const size_t pick = random() % 3 != 0 ? 0 : random() % choice.values.size();
        const char* value = choice.values[round == 0 ? 0 : pick];
        if (*value == '\0') continue;
        ASSERT_TRUE(question.set(choice.flag, value));
        asked += std::string(" --") + choice.flag + " " + value;
      }
      SCOPED_TRACE(asked);
      const auto varied = vary(*scenario, question);
      if (!varied) continue;
      const auto built = built_graph_of(*varied);
      if (!built) continue;
      const auto rewritten = graph_of(*varied, *built);
      if (!rewritten) continue;
      const model::Graph& graph = **rewritten;
      step::TrainOptions options = varied->train;
      const auto short_cut = step::trace_training(graph, options);
      options.fold_layers = false;
      const auto plain = step::trace_training(graph, options);
      ASSERT_EQ(short_cut.has_value(), plain.has_value());
      if (!plain) continue;
      ASSERT_NO_FATAL_FAILURE(step::expect_equal(*short_cut, *plain));
      ++compared;
      if (short_cut->unfolded_units > 0) ++folded;
    }
  }
  EXPECT_GT(folded, compared / 2);
}

// A question asked after others of the same scenario is answered as if it had been asked alone.
TEST(SharedSteps, ChangeNoPrediction) {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.batch = 2;
  question.seq = 256;
  const auto scenario = resolve(question);
  ASSERT_TRUE(scenario);
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    FitQuestion asked = question;
    std::string flags;
    for (const Choice& choice : choices()) {
      const char* value = choice.values[random() % 4 != 0 ? 0 : random() % choice.values.size()];
      if (*value == '\0') continue;
      ASSERT_TRUE(asked.set(choice.flag, value));
      flags += std::string(" --") + choice.flag + " " + value;
    }
    SCOPED_TRACE(flags);
    const auto varied = vary(*scenario, asked);
    const auto alone = resolve(asked);
    ASSERT_EQ(varied.has_value(), alone.has_value());
    if (!alone) continue;
    const auto in_company = predict_in_detail(*varied, 0);
    const auto by_itself = predict_in_detail(*alone, 0);
    ASSERT_EQ(in_company.has_value(), by_itself.has_value());
    if (!by_itself) continue;
    ASSERT_NO_FATAL_FAILURE(step::expect_equal(in_company->trace, by_itself->trace));
    EXPECT_EQ(in_company->prediction.peak_reserved, by_itself->prediction.peak_reserved);
    EXPECT_EQ(in_company->prediction.device_used.high, by_itself->prediction.device_used.high);
    EXPECT_EQ(in_company->prediction.parameter_count, by_itself->prediction.parameter_count);
  }
}

}  // namespace
}  // namespace headroom::fit
