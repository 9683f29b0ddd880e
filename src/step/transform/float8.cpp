#include "step/transform/float8.h"

#include <algorithm>
#include <map>

namespace headroom::step {

namespace {

constexpr int64_t kMultiple = 16;

Result<void> check_sizes(const model::Parameter& weight) {
  const auto fits = [](int64_t size) { return size % kMultiple == 0; };
  if (std::ranges::all_of(weight.shape, fits)) return {};
  return Error{ErrorCode::usage,
               "float8 takes weights whose sizes are multiples of 16: " + weight.name + " is none",
               "--float8", "leave it out"};
}

}  // namespace

Result<model::Graph> apply_float8(model::Graph graph) {
  std::map<model::ValueId, model::Parameter*> weights;
  for (model::Parameter& parameter : graph.parameters) {
    if (parameter.value != model::kNoValue) weights[parameter.value] = &parameter;
  }
  for (const model::Region& region : graph.regions) {
    if (region.kind != model::RegionKind::layer) continue;
    for (uint32_t i = region.begin; i < region.end; ++i) {
      if (graph.instructions[i].kind != model::InstructionKind::operation) continue;
      model::Operation& operation = graph.operations[graph.instructions[i].index];
      if (operation.kind != op::OpKind::linear) continue;
      const auto weight = weights.find(operation.inputs[1]);
      if (weight == weights.end()) continue;
      HEADROOM_TRY(check_sizes(*weight->second));
      weight->second->float8 = true;
      operation.kind = op::OpKind::float8_linear;
    }
  }
  return graph;
}

}  // namespace headroom::step
