#include "step/transform/head_site.h"

#include <algorithm>

namespace headroom::step {

using model::Graph;
using model::InstructionKind;
using model::Operation;
using model::RegionKind;
using op::OpKind;

namespace {

const model::Region* region_of(const Graph& graph, RegionKind kind) {
  const auto found = std::ranges::find(graph.regions, kind, &model::Region::kind);
  return found == graph.regions.end() ? nullptr : &*found;
}

std::set<uint32_t> operations_of(const Graph& graph, const model::Region& region) {
  std::set<uint32_t> operations;
  for (uint32_t i = region.begin; i < region.end; ++i) {
    const model::Instruction& instruction = graph.instructions[i];
    if (instruction.kind == InstructionKind::operation) operations.insert(instruction.index);
  }
  return operations;
}

Error no_head() {
  return {ErrorCode::usage, "this model's head and loss cannot be told from the rest of it", "",
          "leave the loss as it is (--loss hf)"};
}

}  // namespace

Result<HeadSite> find_head(const Graph& graph) {
  const model::Region* head = region_of(graph, RegionKind::lm_head);
  const model::Region* loss = region_of(graph, RegionKind::loss);
  if (head == nullptr || loss == nullptr || loss->inputs.size() < 2) return no_head();
  HeadSite site;
  site.head = operations_of(graph, *head);
  site.loss = operations_of(graph, *loss);
  if (site.head.empty() || site.loss.empty()) return no_head();
  const Operation& product = graph.operations[*site.head.begin()];
  if (product.kind != OpKind::linear) return no_head();
  const auto cross_entropy = std::ranges::find_if(
      site.loss, [&](uint32_t i) { return graph.operations[i].kind == OpKind::cross_entropy; });
  if (cross_entropy == site.loss.end()) return no_head();
  site.cross_entropy = *cross_entropy;
  site.hidden = product.inputs[0];
  site.weight = product.inputs[1];
  if (product.inputs.size() > 2) site.bias = product.inputs[2];
  site.logits = graph.operations[*site.head.rbegin()].outputs[0];
  site.labels = loss->inputs[1];
  const auto labels = std::ranges::find(graph.inputs, site.labels, &model::GraphInput::value);
  const auto weight = std::ranges::find_if(
      graph.parameters, [&](const model::Parameter& p) { return p.value == site.weight; });
  const bool is_known = labels != graph.inputs.end() && labels->shape.size() == 2 &&
                        weight != graph.parameters.end() && weight->shape.size() == 2;
  if (!is_known) return no_head();
  site.batch = labels->shape[0];
  site.sequence = labels->shape[1];
  site.classes = weight->shape[0];
  site.width = weight->shape[1];
  return site;
}

}  // namespace headroom::step
