#include "step/transform/zero3_linear.h"

namespace headroom::step {

model::Graph apply_zero3_linear(model::Graph graph) {
  for (model::Operation& operation : graph.operations) {
    if (operation.kind == op::OpKind::linear) operation.attributes.flag = true;
  }
  return graph;
}

}  // namespace headroom::step
