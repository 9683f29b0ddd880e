#include "step/transform/enclose.h"

#include <algorithm>
#include <utility>

namespace headroom::step {

using model::Graph;
using model::Instruction;
using model::InstructionKind;
using model::Region;
using model::RegionKind;

namespace {

// A model finds its loss by its class's name. GPT2LMHeadModel's has none that is known, and the
// warning about that is what cannot be traced (transformers/modeling_utils.py, loss_type).
bool has_loss_apart(std::string_view model_type) { return model_type == "gpt2"; }

uint32_t end_of_model(const Graph& graph, bool without_loss) {
  const auto all = static_cast<uint32_t>(graph.instructions.size());
  if (!without_loss) return all;
  const auto loss = std::ranges::find(graph.regions, RegionKind::loss, &Region::kind);
  return loss == graph.regions.end() ? all : loss->begin;
}

}  // namespace

Graph enclose(Graph graph, std::string_view model_type) {
  const bool without_loss = has_loss_apart(model_type);
  const uint32_t end = end_of_model(graph, without_loss);
  // One instruction comes in front, and one behind the model.
  for (Region& region : graph.regions) {
    const uint32_t before = region.begin < end ? 1 : 2;
    region.begin += before;
    region.end += before;
  }
  const auto index = static_cast<uint32_t>(graph.regions.size());
  Region whole;
  whole.kind = RegionKind::whole;
  whole.end = end + 2;
  if (!without_loss) whole.outputs.push_back(graph.loss);
  whole.outputs.push_back(graph.logits);
  whole.outputs.insert(whole.outputs.end(), graph.outputs.begin(), graph.outputs.end());
  std::erase(whole.outputs, model::kNoValue);
  graph.regions.push_back(std::move(whole));
  auto& instructions = graph.instructions;
  instructions.insert(instructions.begin() + end, Instruction{InstructionKind::leave, index});
  instructions.insert(instructions.begin(), Instruction{InstructionKind::enter, index});
  return graph;
}

}  // namespace headroom::step
