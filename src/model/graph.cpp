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

std::vector<GraphChunk> chunks_of(const Graph& graph) {
  std::vector<GraphChunk> chunks = graph.chunks_before;
  GraphChunk last;
  last.begin = chunks.empty() ? 0 : chunks.back().end;
  last.end = static_cast<uint32_t>(graph.instructions.size());
  last.inputs = graph.inputs;
  last.logits = graph.logits;
  last.loss = graph.loss;
  last.outputs = graph.outputs;
  chunks.push_back(std::move(last));
  return chunks;
}

}  // namespace headroom::model
