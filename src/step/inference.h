// One step of inference: a prefill, or the decoding of one token for every sequence, as eager
// PyTorch runs it without gradients. The graph is built with BuildOptions::use_cache (and `past`
// for decoding), without labels and without training.
//
// The old cache lives until the forward function has returned the new one, as a generate loop has
// it. Input and output as for train_step.h; well under a millisecond a hundred layers.
#pragma once

#include "base/result.h"
#include "model/graph.h"
#include "operator/eager.h"
#include "step/trace.h"

namespace headroom::step {

struct InferenceOptions {
  op::Environment environment;
  op::DType weights = op::DType::bf16;
};

Result<StepTrace> trace_inference(const model::Graph& graph, const InferenceOptions& options);

// Bytes that the key-value cache holds for `tokens` tokens of one sequence in a graph built with a
// cache: read off the graph's own cache tensors, so it is the figure that the step allocates.
// REQUIRES: the graph was built with use_cache and past > 0.
[[nodiscard]] int64_t kv_cache_bytes(const model::Graph& graph, op::DType weights);

}  // namespace headroom::step
