#include "step/transform/input_gradients.h"

#include <algorithm>

#include "step/transform/graph_rewriter.h"

namespace headroom::step {

bool is_input_embedding(const model::Graph& graph, const model::Operation& operation) {
  if (operation.kind != op::OpKind::embedding) return false;
  const auto first =
      std::ranges::find(graph.parameters, model::ParameterRole::embedding, &model::Parameter::role);
  return first != graph.parameters.end() && operation.inputs[0] == first->value;
}

model::Graph require_input_gradients(const model::Graph& graph) {
  GraphRewriter rewriter(graph);
  return rewriter.run([&](const model::Operation& operation) -> GraphRewriter::Outputs {
    if (!is_input_embedding(graph, operation)) return {};
    return {rewriter.builder().require_grad(rewriter.copy_of(operation))};
  });
}

}  // namespace headroom::step
