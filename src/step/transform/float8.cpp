#include "step/transform/float8.h"

#include <algorithm>
#include <map>

namespace headroom::step {

using model::Operation;
using op::OpKind;

namespace {

constexpr int64_t kMultiple = 16;

bool fits(const model::Parameter& weight) {
  return std::ranges::all_of(weight.shape, [](int64_t size) { return size % kMultiple == 0; });
}

// Where sequences are gathered for such products alone, or for the gradient of one, what is
// gathered is cast before (torchao/float8/float8_tensor_parallel.py).
void gather_in_float8(model::Graph& graph) {
  std::map<model::ValueId, const Operation*> makers;
  std::map<model::ValueId, bool> is_for_others;
  for (const Operation& operation : graph.operations) {
    for (const model::ValueId id : operation.outputs) makers[id] = &operation;
    for (const model::ValueId id : operation.inputs) {
      is_for_others[id] |= operation.kind != OpKind::float8_linear;
    }
  }
  for (Operation& operation : graph.operations) {
    if (operation.kind == OpKind::parallel_gather_sequence) {
      operation.attributes.flag = !is_for_others[operation.outputs[0]];
    } else if (operation.kind == OpKind::parallel_scatter_sequence) {
      const auto maker = makers.find(operation.inputs[0]);
      operation.attributes.flag =
          maker != makers.end() && maker->second->kind == OpKind::float8_linear;
    }
  }
}

}  // namespace

Result<model::Graph> apply_float8(model::Graph graph, Float8Gathers gathers) {
  std::map<model::ValueId, model::Parameter*> weights;
  for (model::Parameter& parameter : graph.parameters) {
    if (parameter.value != model::kNoValue) weights[parameter.value] = &parameter;
  }
  bool has_any = false;
  for (const model::Region& region : graph.regions) {
    if (region.kind != model::RegionKind::layer) continue;
    for (uint32_t i = region.begin; i < region.end; ++i) {
      if (graph.instructions[i].kind != model::InstructionKind::operation) continue;
      Operation& operation = graph.operations[graph.instructions[i].index];
      if (operation.kind != OpKind::linear) continue;
      const auto weight = weights.find(operation.inputs[1]);
      if (weight == weights.end() || !fits(*weight->second)) continue;
      weight->second->float8 = gathers.weights;
      operation.kind = OpKind::float8_linear;
      has_any = true;
    }
  }
  if (has_any) {
    if (gathers.sequences) gather_in_float8(graph);
    return graph;
  }
  return Error{ErrorCode::usage, "no layer has a linear module that float8 takes", "--float8",
               "nn.Linear whose sizes are multiples of 16; leave it out of other models"};
}

}  // namespace headroom::step
