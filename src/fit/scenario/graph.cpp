#include "fit/scenario/graph.h"

#include "fit/scenario/expert_parallel.h"
#include "fit/scenario/stage_adapters.h"
#include "step/transform/autocast.h"
#include "step/transform/chunked_loss.h"
#include "step/transform/colossal_tensor.h"
#include "step/transform/context_parallel.h"
#include "step/transform/enclose.h"
#include "step/transform/fast_kernels.h"
#include "step/transform/fast_lora.h"
#include "step/transform/float8.h"
#include "step/transform/freeze.h"
#include "step/transform/fused_linear_loss.h"
#include "step/transform/fused_loss.h"
#include "step/transform/head_in_chunks.h"
#include "step/transform/ia3.h"
#include "step/transform/input_gradients.h"
#include "step/transform/liger.h"
#include "step/transform/lora.h"
#include "step/transform/quantize.h"
#include "step/transform/tensor_parallel.h"
#include "step/transform/zero3_linear.h"

namespace headroom::fit {

namespace {

// Weights need ranks that data is shared out among, sequences alone do not do (torchtitan's
// Float8Handler: dp_shard_enabled).
step::Float8Gathers float8_gathers(const FitQuestion& q) {
  if (q.float8 == Float8::rowwise) return {.weights = false, .sequences = false};
  return {.weights = q.ranks > 1 || q.division != Division::fsdp2};
}

// Kernels are patched into the modules before the model is made.
Result<model::Graph> with_kernels(const Scenario& s, const model::Graph& graph,
                                  std::string_view model_type) {
  if (s.question.kernels == Kernels::liger) return step::apply_liger(graph, model_type);
  return step::apply_fast_kernels(graph, model_type);
}

// fms-acceleration carries Liger's operator as it was in 0.3.
step::FusedLinearLossOptions linear_loss_of(const Scenario& s) {
  step::FusedLinearLossOptions options;
  if (s.question.kernels == Kernels::fast) {
    options.loss.liger = {0, 3};
    options.shifts_hidden = true;
  }
  return options;
}

// Under fully_shard the head's gradient adds up in what it is reduced in.
step::HeadInChunks head_in_chunks_of(const Scenario& s) {
  const FitQuestion& q = s.question;
  step::HeadInChunks options{.chunks = q.loss_chunks};
  options.is_of_parts = q.tensor_ranks > 1;
  if (q.division == Division::fsdp2) {
    options.whole_gradient = q.reduce_dtype ? dtype_of(*q.reduce_dtype) : s.train.weights;
  }
  return options;
}

Result<model::Graph> with_loss(const Scenario& s, const model::Graph& graph,
                               std::string_view model_type) {
  switch (s.loss) {
    case Loss::fused_linear:
      return step::apply_fused_linear_loss(graph, linear_loss_of(s));
    case Loss::fused:
      return step::apply_fused_loss(graph, s.question.kernels == Kernels::fast
                                               ? step::fast_loss(model_type, s.build.transformers)
                                               : step::FusedLoss::liger);
    case Loss::chunked:
      return step::apply_chunked_loss(graph);
    case Loss::chunked_head:
      return step::apply_head_in_chunks(graph, head_in_chunks_of(s));
    case Loss::automatic:
    case Loss::hf:
      break;
  }
  return graph;
}

op::QuantizedFormat format_of(Method method) {
  return method == Method::gptq_lora   ? op::QuantizedFormat::gptq
         : method == Method::lora_8bit ? op::QuantizedFormat::int8
                                       : op::QuantizedFormat::nf4_double;
}

// peft quantizes first, wraps linear modules second; autocast is what the loop runs it all under.
Result<model::Graph> with_quantized_base(const Scenario& s, const model::Graph& graph) {
  step::QuantizeOptions options;
  options.format = format_of(s.question.method);
  options.weights = s.train.weights;
  options.compute = s.train.weights;
  // Where parameters are shared out one by one, as guides of peft and accelerate ask for it; in the
  // flat ones of FSDP's first version bytes of either type take as much.
  const Division division = s.question.division;
  if (division == Division::fsdp2 || division == Division::zero3) options.storage = s.train.weights;
  options.group_size = s.question.gptq_group;
  if (has_bitsandbytes_base(s.question)) {
    options.float32_rest = s.question.kbit_preparation == KbitPreparation::all;
    options.float32_norms = s.question.kbit_preparation == KbitPreparation::norms;
    options.float32_others = s.question.kbit_preparation == KbitPreparation::others;
  }
  return step::apply_quantization(graph, options);
}

Result<model::Graph> with_adapters(const Scenario& s, const model::Graph& graph,
                                   const std::string& model_type) {
  const bool checkpoints = s.train.checkpointing != step::CheckpointPolicy::none;
  if (s.question.method == Method::ia3) {
    step::Ia3Options options;
    options.targets = s.question.lora_targets;
    options.feedforward = s.question.ia3_feedforward;
    options.model_type = model_type;
    options.adapter_dtype = dtype_of(s.question.lora_dtype);
    options.require_input_gradients = checkpoints;
    options.trains_head = s.build.classes.has_value();
    return step::apply_ia3(graph, options);
  }
  step::LoraOptions options;
  options.dora = s.question.method == Method::dora;
  options.rank = s.question.lora_rank;
  options.dropout = s.question.lora_dropout;
  options.targets = s.question.lora_targets;
  options.model_type = model_type;
  options.adapter_dtype = dtype_of(s.question.lora_dtype);
  options.autocast = s.question.mixed_precision != MixedPrecision::none;
  const bool is_sharded_when_asked = s.question.division == Division::fsdp1 && options.autocast;
  if (is_sharded_when_asked && !has_quantized_base(s.question)) {
    options.input_dtype = op::DType::f32;
  }
  options.require_input_gradients = checkpoints;
  options.trains_head = s.build.classes.has_value();
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

// A part of the model may have none.
bool has_head(const Scenario& s) { return s.build.parts.empty() || s.build.parts.back().is_last; }

}  // namespace

Result<GraphPointer> built_graph_of(const Scenario& s) {
  if (s.question.megatron) {
    HEADROOM_ASSIGN(model::Graph stage, model::build_megatron_stage(s.question.megatron->stage));
    return std::make_shared<const model::Graph>(std::move(stage));
  }
  Result<model::Graph> built = model::build_graph(s.model->view(), s.build, {s.question.assume});
  if (s.question.expert_ranks > 1) HEADROOM_TRY(check_shared_out(s, built));
  HEADROOM_ASSIGN(model::Graph graph, std::move(built));
  return std::make_shared<const model::Graph>(std::move(graph));
}

Result<GraphPointer> graph_of(const Scenario& s, GraphPointer graph) {
  if (s.question.megatron) return graph;
  const FitQuestion& q = s.question;
  HEADROOM_ASSIGN(const std::string model_type, model_type_of(s));
  const auto rewrite = [&](Result<model::Graph> rewritten) -> Result<void> {
    HEADROOM_ASSIGN(model::Graph next, std::move(rewritten));
    graph = std::make_shared<const model::Graph>(std::move(next));
    return {};
  };
  if (q.kernels != Kernels::none) {
    HEADROOM_TRY(rewrite(with_kernels(s, *graph, model_type)));
  }
  if (s.loss != Loss::hf && has_head(s)) {
    HEADROOM_TRY(rewrite(with_loss(s, *graph, model_type)));
  }
  if (has_quantized_base(q)) {
    HEADROOM_TRY(rewrite(with_quantized_base(s, *graph)));
  }
  if (!q.freeze.empty()) {
    HEADROOM_TRY(rewrite(with_frozen_parts(s, *graph)));
  }
  if (q.method != Method::full) {
    HEADROOM_TRY(check_stage_adapters(s, *graph, model_type));
    HEADROOM_TRY(rewrite(with_adapters(s, *graph, model_type)));
  }
  if (q.tensor_ranks > 1 && q.division == Division::gemini) {
    HEADROOM_TRY(rewrite(step::apply_colossal_tensor(*graph, q.tensor_ranks)));
  } else if (q.tensor_ranks > 1) {
    constexpr op::Version kDividesEmbedding{5, 21};
    HEADROOM_TRY(rewrite(step::apply_tensor_parallel(
        *graph,
        {.ranks = q.tensor_ranks,
         .model_type = model_type,
         .cuts_gradients = q.division != Division::none,
         .is_sequence_parallel = q.sequence_parallel,
         .divides_embedding = q.sequence_parallel || s.build.transformers >= kDividesEmbedding})));
  }
  if (q.kernels == Kernels::fast && has_quantized_base(q)) {
    HEADROOM_TRY(rewrite(step::apply_fast_lora(*graph, model_type)));
  }
  if (q.context_ranks > 1) {
    HEADROOM_TRY(rewrite(step::apply_context_parallel(*graph, q.context_ranks)));
  }
  if (q.float8 != Float8::none) {
    HEADROOM_TRY(rewrite(step::apply_float8(*graph, float8_gathers(q))));
  }
  // Of a pipeline's stage, and beside experts that are shared out, mixed precision is fully_shard's
  // alone.
  const bool is_autocast =
      q.mixed_precision != MixedPrecision::none && q.stages == 1 && q.expert_ranks == 1;
  if (is_autocast) HEADROOM_TRY(rewrite(under_autocast(s, *graph)));
  if (q.division == Division::zero3) HEADROOM_TRY(rewrite(step::apply_zero3_linear(*graph)));
  if (q.compile.model) HEADROOM_TRY(rewrite(step::enclose(*graph, model_type)));
  return graph;
}

}  // namespace headroom::fit
