#include "step/transform/float8.h"

#include <algorithm>
#include <map>

namespace headroom::step {

namespace {

constexpr int64_t kMultiple = 16;

bool fits(const model::Parameter& weight) {
  return std::ranges::all_of(weight.shape, [](int64_t size) { return size % kMultiple == 0; });
}

}  // namespace

Result<model::Graph> apply_float8(model::Graph graph) {
  std::map<model::ValueId, model::Parameter*> weights;
  for (model::Parameter& parameter : graph.parameters) {
    if (parameter.value != model::kNoValue) weights[parameter.value] = &parameter;
  }
  bool has_any = false;
  for (const model::Region& region : graph.regions) {
    if (region.kind != model::RegionKind::layer) continue;
    for (uint32_t i = region.begin; i < region.end; ++i) {
      if (graph.instructions[i].kind != model::InstructionKind::operation) continue;
      model::Operation& operation = graph.operations[graph.instructions[i].index];
      if (operation.kind != op::OpKind::linear) continue;
      const auto weight = weights.find(operation.inputs[1]);
      if (weight == weights.end() || !fits(*weight->second)) continue;
      weight->second->float8 = true;
      operation.kind = op::OpKind::float8_linear;
      has_any = true;
    }
  }
  if (has_any) return graph;
  return Error{ErrorCode::usage, "no layer has a linear module that float8 takes", "--float8",
               "nn.Linear whose sizes are multiples of 16; leave it out of other models"};
}

}  // namespace headroom::step
