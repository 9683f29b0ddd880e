#include "ops/step_source.h"

#include <algorithm>

#include "model/tracer.h"
#include "step/inference.h"
#include "step/train_step.h"
#include "timing/decode_graph.h"

namespace headroom::ops {
namespace {

constexpr int64_t kBatch = 1;
constexpr int64_t kSequence = 512;

Result<step::StepTrace> trace_of(const model::Graph& graph, const StepSetting& setting) {
  const op::DType weights = setting.dtype.value_or(op::DType::bf16);
  if (setting.is_training) {
    step::TrainOptions options;
    options.weights = weights;
    return step::trace_training(graph, options);
  }
  step::InferenceOptions options;
  options.weights = weights;
  return step::trace_inference(graph, options);
}

}  // namespace

Result<StepSource> step_of_config(const text::JsonView& config, const StepSetting& setting) {
  HEADROOM_ASSIGN(const model::Family* family, model::find_family(config));
  StepSource source;
  source.batch = setting.batch.value_or(kBatch);
  source.shape.type = setting.dtype.value_or(source.shape.type);
  source.shape.sequence = setting.seq.value_or(kSequence);
  const auto tokens = checked_multiply(source.batch, source.shape.sequence);
  if (!tokens) return Error{ErrorCode::usage, "is more tokens than can be counted", "--batch", ""};
  source.shape.tokens = *tokens;
  HEADROOM_TRY(timing::read_heads(config, source.shape));
  model::BuildOptions build;
  build.batch = source.batch;
  build.sequence = source.shape.sequence;
  build.training = setting.is_training;
  build.labels = setting.is_training;
  build.use_cache = !setting.is_training && family->task == model::Task::causal_lm;
  HEADROOM_ASSIGN(const model::Graph graph, model::build_graph(config, build));
  source.weights = timing::weight_bytes(graph, source.shape.type);
  HEADROOM_ASSIGN(source.trace, trace_of(graph, setting));
  return source;
}

Result<StepSource> step_of_module(const std::string& target, const StepSetting& setting) {
  model::TraceRequest request;
  request.target = target;
  request.batch = setting.batch;
  request.sequence = setting.seq;
  request.dtype = setting.dtype.value_or(op::DType::bf16);
  request.forward_only = !setting.is_training;
  HEADROOM_ASSIGN(const model::TracedGraph traced, model::trace_function(request));
  StepSource source;
  // What the function does not take is not known, and 0.
  source.batch = traced.batch.value_or(0);
  source.shape.sequence = traced.sequence.value_or(0);
  const auto tokens = checked_multiply(std::max<int64_t>(source.batch, 1),
                                       std::max<int64_t>(source.shape.sequence, 1));
  source.shape.tokens = tokens.value_or(1);
  source.shape.type = setting.dtype.value_or(source.shape.type);
  source.weights = timing::weight_bytes(traced.graph, source.shape.type);
  HEADROOM_ASSIGN(source.trace, trace_of(traced.graph, setting));
  return source;
}

}  // namespace headroom::ops
