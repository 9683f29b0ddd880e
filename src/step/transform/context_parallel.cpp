#include "step/transform/context_parallel.h"

namespace headroom::step {

namespace {

Error refuse(const char* why) {
  return Error{ErrorCode::usage, why, "--method cp",
               "--attention sdpa, and a causal decoder whose config has no attention dropout"};
}

bool is_taken(const model::Operation& operation) {
  const bool has_mask = operation.inputs.size() > 3 && operation.inputs[3] != model::kNoValue;
  return operation.attributes.ints[0] != 0 && !has_mask && operation.attributes.number == 0;
}

}  // namespace

Result<model::Graph> apply_context_parallel(model::Graph graph, int64_t ranks) {
  size_t rings = 0;
  for (model::Operation& operation : graph.operations) {
    if (operation.kind != op::OpKind::sdpa) continue;
    if (!is_taken(operation)) {
      return refuse("context_parallel takes causal attention without a mask or dropout");
    }
    operation.kind = op::OpKind::ring_attention;
    operation.attributes.ints.push_back(ranks);
    ++rings;
  }
  if (rings == 0) {
    return refuse(
        "context_parallel divides PyTorch's scaled_dot_product_attention, which is not here");
  }
  return graph;
}

}  // namespace headroom::step
