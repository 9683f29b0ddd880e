// Steps that are compiled, layer by layer or as a whole, against eager ones, of a model of every
// family: the same gradients, none lost and none too many, and the same products of matrices.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fit/one_of_each_family.h"
#include "fit/scenario/graph.h"
#include "fit/scenario/scenario.h"
#include "step/train_step.h"

namespace headroom::fit {
namespace {

// Of what backward leaves in a trained parameter's place, in order of size.
std::vector<int64_t> gradients_of(const step::StepTrace& trace) {
  std::vector<int64_t> sizes;
  for (const memory::BufferInfo& buffer : trace.memory.buffers) {
    const bool is_gradient = buffer.category == memory::Category::gradient ||
                             buffer.category == memory::Category::lm_head_gradient;
    if (is_gradient) sizes.push_back(buffer.requested_bytes);
  }
  std::ranges::sort(sizes);
  return sizes;
}

Result<GraphPointer> graph_for(const Scenario& scenario) {
  HEADROOM_ASSIGN(const GraphPointer built, built_graph_of(scenario));
  return graph_of(scenario, built);
}

// What checkpoints there are.
struct Checkpoints {
  step::CheckpointPolicy policy = step::CheckpointPolicy::none;
  step::KeptOutputs kept = {};
};

struct Compared {
  int by_layer = 0;
  int whole = 0;
};

void compare(FitQuestion question, Compared& compared) {
  const auto scenario = resolve(question);
  ASSERT_TRUE(scenario) << scenario.error().to_string();
  const auto graph = graph_for(*scenario);
  if (!graph) return;  // adapters, of a model that nobody knows modules of
  question.compile = {.model = true};
  const auto whole = resolve(question);
  const auto enclosed = whole ? graph_for(*whole) : Result<GraphPointer>(whole.error());
  step::TrainOptions options = scenario->train;
  options.steps = 1;
  const auto eager = step::trace_training(**graph, options);
  ASSERT_TRUE(eager) << question.model;
  for (const auto& [policy, kept] :
       {Checkpoints{}, Checkpoints{step::CheckpointPolicy::full},
        Checkpoints{step::CheckpointPolicy::full, {.attention = true, .products = true}}}) {
    options.checkpointing = policy;
    options.checkpoint_keeps = kept;
    options.compiled = {.layers = true, .loss = true};
    const auto compiled = step::trace_training(**graph, options);
    if (!compiled) continue;  // refused: the golden fit_compiled_refused has the words
    EXPECT_EQ(gradients_of(*compiled), gradients_of(*eager)) << question.model;
    ++compared.by_layer;
    if (!enclosed) continue;
    options.compiled = {.model = true};
    const auto compiled_whole = step::trace_training(**enclosed, options);
    if (!compiled_whole) continue;
    EXPECT_EQ(gradients_of(*compiled_whole), gradients_of(*eager)) << question.model;
    ++compared.whole;
  }
}

FitQuestion question_of(const std::string& model) {
  FitQuestion question;
  question.model = model;
  question.device = "h100-sxm-80gb";
  question.seq = 64;
  question.batch = 2;  // of one sequence two gradients may lie in one block
  return question;
}

TEST(CompiledSteps, MakeTheGradientsThatEagerOnesDo) {
  Compared compared;
  for (const std::string& name : one_of_each_family()) compare(question_of(name), compared);
  EXPECT_GT(compared.by_layer, 90);
  EXPECT_GT(compared.whole, 90);
}

TEST(CompiledSteps, MakeThemOfAdaptersUnderAutocast) {
  Compared compared;
  for (const std::string& name : one_of_each_family()) {
    FitQuestion question = question_of(name);
    question.method = Method::lora;
    question.dtype = Dtype::fp32;
    question.mixed_precision = MixedPrecision::bf16;
    compare(question, compared);
  }
  EXPECT_GT(compared.by_layer, 60);
  EXPECT_GT(compared.whole, 60);
}

}  // namespace
}  // namespace headroom::fit
