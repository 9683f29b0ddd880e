#include "model/graph.h"

namespace headroom::model {

int64_t parameter_count(const Graph& graph, bool trainable_only) {
  int64_t count = 0;
  for (const Parameter& parameter : graph.parameters) {
    if (parameter.tied_to || (trainable_only && !parameter.trainable)) continue;
    count += parameter.packs > 0 ? parameter.packs : op::product(parameter.shape);
  }
  return count;
}

}  // namespace headroom::model
