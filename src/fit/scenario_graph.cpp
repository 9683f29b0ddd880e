#include "fit/scenario_graph.h"

#include "step/transform/autocast.h"
#include "step/transform/freeze.h"
#include "step/transform/input_gradients.h"
#include "step/transform/lora.h"
#include "step/transform/quantize.h"

namespace headroom::fit {

namespace {

// peft quantizes first, wraps linear modules second; autocast is what the loop runs it all under.
Result<model::Graph> with_quantized_base(const Scenario& s, const model::Graph& graph) {
  step::QuantizeOptions options;
  const bool is_gptq = s.question.method == Method::gptq_lora;
  options.format = is_gptq ? op::QuantizedFormat::gptq : op::QuantizedFormat::nf4_double;
  options.weights = s.train.weights;
  options.compute = s.train.weights;
  options.group_size = s.question.gptq_group;
  if (!is_gptq) {
    options.float32_rest = s.question.kbit_preparation == KbitPreparation::all;
    options.float32_norms = s.question.kbit_preparation == KbitPreparation::norms;
  }
  return step::apply_quantization(graph, options);
}

Result<model::Graph> with_adapters(const Scenario& s, const model::Graph& graph) {
  step::LoraOptions options;
  options.rank = s.question.lora_rank;
  options.dropout = s.question.lora_dropout;
  options.targets = s.question.lora_targets;
  HEADROOM_ASSIGN(const auto model_type, s.model->view().optional_string("model_type"));
  options.model_type = s.question.assume.empty() ? model_type.value_or("") : s.question.assume;
  options.adapter_dtype = dtype_of(s.question.lora_dtype);
  options.autocast = s.question.mixed_precision != MixedPrecision::none;
  options.require_input_gradients = s.train.checkpointing != step::CheckpointPolicy::none;
  return step::apply_lora(graph, options);
}

model::Graph under_autocast(const Scenario& s, const model::Graph& graph) {
  step::AutocastOptions options;
  options.dtype =
      s.question.mixed_precision == MixedPrecision::fp16 ? op::DType::f16 : op::DType::bf16;
  options.outputs_to_float32 = s.question.accelerate;
  return step::apply_autocast(graph, options);
}

Result<model::Graph> with_frozen_parts(const Scenario& s, model::Graph graph) {
  HEADROOM_ASSIGN(graph, step::apply_freeze(std::move(graph), s.question.freeze));
  const bool checkpoints = s.train.checkpointing != step::CheckpointPolicy::none;
  constexpr op::Version kRequiresInputGradients{5, 0};
  if (!checkpoints || s.build.transformers < kRequiresInputGradients) return graph;
  return step::require_input_gradients(graph);
}

}  // namespace

Result<model::Graph> graph_of(const Scenario& s) {
  if (s.traced) return s.traced->trace.graph;
  const FitQuestion& q = s.question;
  HEADROOM_ASSIGN(model::Graph graph, model::build_graph(s.model->view(), s.build, {q.assume}));
  if (q.method == Method::qlora || q.method == Method::gptq_lora) {
    HEADROOM_ASSIGN(graph, with_quantized_base(s, graph));
  }
  if (!q.freeze.empty()) {
    HEADROOM_ASSIGN(graph, with_frozen_parts(s, std::move(graph)));
  }
  if (q.method != Method::full) {
    HEADROOM_ASSIGN(graph, with_adapters(s, graph));
  }
  if (q.mixed_precision != MixedPrecision::none) graph = under_autocast(s, graph);
  return graph;
}

}  // namespace headroom::fit
