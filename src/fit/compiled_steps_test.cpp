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

TEST(CompiledSteps, MakeTheGradientsThatEagerOnesDo) {
  int compared = 0;
  int compared_whole = 0;
  for (const std::string& name : one_of_each_family()) {
    FitQuestion question;
    question.model = name;
    question.device = "h100-sxm-80gb";
    question.seq = 64;
    question.batch = 2;  // of one sequence two gradients may lie in one block
    const auto scenario = resolve(question);
    ASSERT_TRUE(scenario) << scenario.error().to_string();
    const auto graph = graph_for(*scenario);
    ASSERT_TRUE(graph) << name;
    question.compile = {.model = true};
    const auto whole = resolve(question);
    const auto enclosed = whole ? graph_for(*whole) : Result<GraphPointer>(whole.error());
    step::TrainOptions options = scenario->train;
    options.steps = 1;
    const auto eager = step::trace_training(**graph, options);
    ASSERT_TRUE(eager) << name;
    for (const auto checkpointing : {step::CheckpointPolicy::none, step::CheckpointPolicy::full}) {
      options.checkpointing = checkpointing;
      options.compiled = {.layers = true, .loss = true};
      const auto compiled = step::trace_training(**graph, options);
      if (!compiled) continue;  // refused: the golden fit_compiled_refused has the words
      EXPECT_EQ(gradients_of(*compiled), gradients_of(*eager)) << name;
      ++compared;
      if (!enclosed) continue;
      options.compiled = {.model = true};
      const auto compiled_whole = step::trace_training(**enclosed, options);
      if (!compiled_whole) continue;
      EXPECT_EQ(gradients_of(*compiled_whole), gradients_of(*eager)) << name;
      ++compared_whole;
    }
  }
  EXPECT_GT(compared, 60);
  EXPECT_GT(compared_whole, 60);
}

}  // namespace
}  // namespace headroom::fit
