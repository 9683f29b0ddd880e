#include "step/inference.h"

#include <algorithm>

#include "step/interpreter.h"
#include "step/recorder.h"

namespace headroom::step {

using memory::Category;
using model::Graph;
using op::Tensor;

namespace {

bool is_cache(const model::GraphInput& input) { return input.name.starts_with("past_key_values."); }

StepTrace run(const Graph& graph, const InferenceOptions& options) {
  StepTrace trace;
  trace.modules.emplace_back();
  for (const model::Region& region : graph.regions) trace.modules.push_back(region.name);
  Recorder recorder(trace);
  op::Eager eager(recorder, options.environment);
  eager.set_grad_enabled(false);
  Frame frame(graph.value_count);

  recorder.begin_phase(Phase::construct, 0);
  recorder.set_category(Category::parameter);
  for (const model::Parameter& parameter : graph.parameters) {
    if (parameter.tied_to) continue;
    const bool is_head = parameter.role == model::ParameterRole::lm_head;
    recorder.set_category(is_head ? Category::lm_head_weight : Category::parameter);
    frame[parameter.value] =
        eager.empty(parameter.shape, parameter.dtype.value_or(options.weights));
  }
  recorder.set_category(Category::parameter);
  for (const model::Parameter& buffer : graph.buffers) {
    frame[buffer.value] = eager.empty(buffer.shape, buffer.dtype.value_or(options.weights));
  }

  recorder.begin_phase(Phase::input, 1);
  for (const model::GraphInput& input : graph.inputs) {
    recorder.set_category(is_cache(input) ? Category::kv_cache : Category::input);
    frame[input.value] = eager.empty(input.shape, input.dtype.value_or(options.weights));
  }

  recorder.begin_phase(Phase::forward, 1);
  eager.set_module(0);
  Interpreter interpreter(eager, graph);
  interpreter.run(0, static_cast<uint32_t>(graph.instructions.size()), frame);
  for (const model::ValueId id : graph.outputs)
    recorder.recategorize(frame[id], Category::kv_cache);

  recorder.begin_phase(Phase::release, 1);
  for (const model::GraphInput& input : graph.inputs) {
    // A state that was written to in place is the new cache.
    const bool stays = std::ranges::find(graph.outputs, input.value) != graph.outputs.end();
    if (!stays) frame[input.value] = Tensor();
  }
  if (graph.logits != model::kNoValue) frame[graph.logits] = Tensor();
  // What is left (weights and the new cache) outlives the step: the trace is taken away before the
  // end of this function lets it go.
  StepTrace result = std::move(trace);
  return result;
}

}  // namespace

Result<StepTrace> trace_inference(const Graph& graph, const InferenceOptions& options) {
  try {
    return run(graph, options);
  } catch (const op::Impossible& impossible) {
    return impossible_error(impossible);
  }
}

int64_t kv_cache_bytes(const Graph& graph, op::DType weights) {
  int64_t bytes = 0;
  for (const model::GraphInput& input : graph.inputs) {
    if (!is_cache(input)) continue;
    bytes += op::product(input.shape) * op::element_size(input.dtype.value_or(weights));
  }
  return bytes;
}

}  // namespace headroom::step
