#include "fit/scenario/stage_adapters.h"

#include <string>
#include <vector>

#include "fit/scenario/errors.h"
#include "fit/scenario/graph.h"
#include "fit/stages.h"
#include "step/transform/lora.h"
#include "step/transform/peft.h"

namespace headroom::fit {

namespace {

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : between) + word;
  return all;
}

// Of a variation, which has modules with the question's names; the Error is of one that has none.
Result<void> find_targets(const Scenario& scenario, const FitQuestion& varied,
                          std::string_view model_type) {
  HEADROOM_ASSIGN(const Scenario other, vary(scenario, varied));
  HEADROOM_ASSIGN(const GraphPointer graph, built_graph_of(other));
  HEADROOM_TRY(step::adapter_sites(*graph, varied.lora_targets, model_type));
  return {};
}

std::vector<std::string> stages_with_targets(const Scenario& scenario,
                                             std::string_view model_type) {
  std::vector<std::string> stages;
  for (int64_t stage = 0; stage < scenario.question.stages; ++stage) {
    if (find_targets(scenario, at_stage(scenario.question, stage), model_type)) {
      stages.push_back(std::to_string(stage));
    }
  }
  return stages;
}

}  // namespace

Result<void> check_stage_adapters(const Scenario& scenario, const model::Graph& graph,
                                  std::string_view model_type) {
  const FitQuestion& q = scenario.question;
  // peft's own choice is modules of every layer, and every stage has layers (set_parts).
  if (q.stages == 1 || q.lora_targets.empty()) return {};
  if (step::adapter_sites(graph, q.lora_targets, model_type)) return {};
  // What the whole model has not is no matter of stages.
  HEADROOM_TRY(find_targets(scenario, without_stages(q), model_type));
  const std::vector<std::string> others = stages_with_targets(scenario, model_type);
  std::vector<std::string> wider = step::default_lora_targets(model_type);
  wider.insert(wider.end(), q.lora_targets.begin(), q.lora_targets.end());
  return contradiction(
      "lora-targets",
      joined(q.lora_targets, ", ") + " is on stage " + joined(others, ", ") +
          " alone (the first is 0), and peft takes no stage without a module to "
          "adapt, as stage " +
          std::to_string(q.stage) + " would be",
      "name a module that every stage has beside it: --lora-targets " + joined(wider, ","));
}

}  // namespace headroom::fit
