#include "step/transform/input_gradients.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "step/transform/graph_rewriter.h"

namespace headroom::step {

namespace {

using model::Graph;
using model::Operation;
using op::OpKind;

bool looks_up_input(const Graph& graph, const Operation& operation) {
  if (operation.kind != OpKind::embedding) return false;
  const auto first =
      std::ranges::find(graph.parameters, model::ParameterRole::embedding, &model::Parameter::role);
  return first != graph.parameters.end() && operation.inputs[0] == first->value;
}

// Modules that multiply what they looked up by a number (BioGptScaledWordEmbedding). Elsewhere such
// a product follows the module.
constexpr std::array<std::string_view, 1> kScaleByNumber{"biogpt.embed_tokens.weight"};

bool is_lookup_times_number(const Graph& graph, size_t at) {
  if (at < 1 || at >= graph.operations.size()) return false;
  const Operation& scaled = graph.operations[at];
  const Operation& lookup = graph.operations[at - 1];
  if (scaled.kind != OpKind::mul || !scaled.attributes.flag) return false;
  if (!looks_up_input(graph, lookup) || scaled.inputs[0] != lookup.outputs[0]) return false;
  return std::ranges::any_of(graph.parameters, [&](const model::Parameter& parameter) {
    return parameter.value == lookup.inputs[0] &&
           std::ranges::find(kScaleByNumber, parameter.name) != kScaleByNumber.end();
  });
}

// Gemma's module multiplies what it looked up by a buffer of its own, cast to the weight's type.
bool is_lookup_times_buffer(const Graph& graph, size_t at) {
  if (at < 2 || at >= graph.operations.size()) return false;
  const Operation& scaled = graph.operations[at];
  const Operation& scale = graph.operations[at - 1];
  const Operation& lookup = graph.operations[at - 2];
  if (scaled.kind != OpKind::mul || scale.kind != OpKind::cast_like) return false;
  const bool is_buffer = std::ranges::any_of(graph.buffers, [&](const model::Parameter& buffer) {
    return buffer.value == scale.inputs[0];
  });
  return is_buffer && looks_up_input(graph, lookup) && scaled.inputs.size() == 2 &&
         scaled.inputs[0] == lookup.outputs[0] && scaled.inputs[1] == scale.outputs[0];
}

}  // namespace

bool is_input_embedding(const Graph& graph, const Operation& operation) {
  const auto at = static_cast<size_t>(&operation - graph.operations.data());
  if (operation.kind == OpKind::mul) {
    return is_lookup_times_number(graph, at) || is_lookup_times_buffer(graph, at);
  }
  return looks_up_input(graph, operation) && !is_lookup_times_number(graph, at + 1) &&
         !is_lookup_times_buffer(graph, at + 2);
}

model::Graph require_input_gradients(const model::Graph& graph) {
  GraphRewriter rewriter(graph);
  return rewriter.run([&](const model::Operation& operation) -> GraphRewriter::Outputs {
    if (!is_input_embedding(graph, operation)) return {};
    return {rewriter.builder().require_grad(rewriter.copy_of(operation))};
  });
}

uint32_t end_with_hook(const Graph& graph, uint32_t end) {
  const Operation& answers = graph.operations[graph.instructions[end].index];
  for (uint32_t i = end + 1; i < graph.instructions.size(); ++i) {
    if (graph.instructions[i].kind == model::InstructionKind::drop) continue;
    if (graph.instructions[i].kind != model::InstructionKind::operation) break;
    const Operation& next = graph.operations[graph.instructions[i].index];
    const bool asks = next.kind == OpKind::require_grad &&
                      std::ranges::find(answers.outputs, next.inputs[0]) != answers.outputs.end();
    return asks ? i : end;
  }
  return end;
}

}  // namespace headroom::step
