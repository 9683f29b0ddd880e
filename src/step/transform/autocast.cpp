#include "step/transform/autocast.h"

#include <map>

#include "step/transform/graph_rewriter.h"

namespace headroom::step {

using model::Attributes;
using model::DType;
using model::Graph;
using model::GraphBuilder;
using model::InstructionKind;
using model::Operation;
using model::Parameter;
using model::RegionKind;
using model::ValueId;
using model::Var;
using op::OpKind;

namespace {

enum class Policy : uint8_t { none, lower_precision, float32, float32_result, loss, inside };

// AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE, as far as the
// operators exist here. A float32 result of a sum or running sum of integers stays what it is.
Policy policy_of(OpKind kind) {
  switch (kind) {
    case OpKind::linear:
    case OpKind::mm:
    case OpKind::addmm:
    case OpKind::bmm:
    case OpKind::baddbmm:
    case OpKind::matmul:
    case OpKind::convolution:
    case OpKind::sdpa:
    // The package itself is not cast; transformers casts its inputs (fa_peft_integration_check).
    case OpKind::flash_attention:
      return Policy::lower_precision;
    case OpKind::exp:
    case OpKind::log:
    case OpKind::rsqrt:
    case OpKind::pow:
    case OpKind::softplus:
    case OpKind::layer_norm:
    case OpKind::rms_norm:
    case OpKind::nll_loss:
      return Policy::float32;
    case OpKind::softmax:
    case OpKind::log_softmax:
      return Policy::float32_result;
    case OpKind::cross_entropy:
      return Policy::loss;
    // Functions written in torch operators (custom_fwd without cast_inputs).
    case OpKind::liger_linear_loss:
    case OpKind::fast_lora:
    case OpKind::fast_lora_mlp:
      return Policy::inside;
    default:
      return Policy::none;
  }
}

constexpr uint32_t kOutside = UINT32_MAX;

// For each operation, the outermost layer that it belongs to: what a checkpoint would run again.
std::vector<uint32_t> layers_of_operations(const Graph& graph) {
  std::vector<uint32_t> layers(graph.operations.size(), kOutside);
  uint32_t layer = kOutside;
  for (const model::Instruction& instruction : graph.instructions) {
    const bool outer = layer == kOutside || layer == instruction.index;
    if (instruction.kind == InstructionKind::operation) {
      layers[instruction.index] = layer;
    } else if (instruction.kind != InstructionKind::drop && outer &&
               graph.regions[instruction.index].kind == RegionKind::layer) {
      layer = instruction.kind == InstructionKind::enter ? instruction.index : kOutside;
    }
  }
  return layers;
}

// By operation: whether it belongs to lm_head.
std::vector<bool> operations_of_head(const Graph& graph) {
  std::vector<bool> in_head(graph.operations.size());
  for (const model::Region& region : graph.regions) {
    if (region.kind != RegionKind::lm_head) continue;
    for (uint32_t i = region.begin; i < region.end; ++i) {
      const model::Instruction& instruction = graph.instructions[i];
      if (instruction.kind == InstructionKind::operation) in_head[instruction.index] = true;
    }
  }
  return in_head;
}

class AutocastWriter {
 public:
  AutocastWriter(const Graph& graph, const AutocastOptions& options)
      : graph_(graph),
        options_(options),
        rewriter_(graph),
        layers_(layers_of_operations(graph)),
        in_head_(operations_of_head(graph)),
        is_parameter_(graph.value_count),
        cacheable_(graph.value_count) {
    for (const Parameter& parameter : graph.parameters) {
      is_parameter_[parameter.value] = true;
      const bool is_float32 = parameter.dtype.value_or(DType::f32) == DType::f32;
      cacheable_[parameter.value] = parameter.trainable && is_float32;
    }
  }

  Graph run() {
    return rewriter_.run([this](const Operation& operation) { return replace(operation); },
                         [this] { leave(); });
  }

 private:
  GraphRewriter::Outputs replace(const Operation& operation) {
    GraphBuilder& g = rewriter_.builder();
    switch (policy_of(operation.kind)) {
      case Policy::none:
        return {};
      case Policy::lower_precision:
        return {cast_and_run(operation, options_.dtype)};
      case Policy::float32:
        return {cast_and_run(operation, DType::f32)};
      case Policy::float32_result: {
        Attributes attributes = operation.attributes;
        if (!attributes.dtype) attributes.dtype = DType::f32;
        return {g.apply(operation.kind, {rewriter_.value(operation.inputs[0])}, attributes)};
      }
      case Policy::loss: {
        // cross_entropy_loss names its input's type to log_softmax, so autocast leaves that alone;
        // nll_loss is what it casts.
        const Var log = g.log_softmax(rewriter_.value(operation.inputs[0]), 1);
        Attributes attributes;
        attributes.dtype = DType::f32;
        Var wide = g.apply(OpKind::autocast, {log}, attributes);
        return {g.nll_loss(std::move(wide), rewriter_.value(operation.inputs[1]))};
      }
      case Policy::inside:
        return cast_inside(operation);
    }
    return {};
  }

  // The operator's arguments are cast last to first: a call's arguments as g++ evaluates them.
  Var cast_and_run(const Operation& operation, DType dtype) {
    std::vector<Var> inputs(operation.inputs.size());
    for (size_t i = inputs.size(); i-- > 0;) {
      if (operation.inputs[i] != model::kNoValue) inputs[i] = cast(operation, i, dtype);
    }
    return rewriter_.builder().apply(operation.kind, std::move(inputs), operation.attributes);
  }

  // The operator casts for itself. What it leaves in the cache of the head's weight lives as long.
  GraphRewriter::Outputs cast_inside(const Operation& operation) {
    Attributes attributes = operation.attributes;
    attributes.dtype = options_.dtype;
    std::vector<Var> inputs;
    for (const ValueId id : operation.inputs) inputs.push_back(rewriter_.value(id));
    const bool is_loss = operation.kind == OpKind::liger_linear_loss;
    const bool leaves_a_cast = is_loss && cacheable_[operation.inputs[1]];
    std::vector<Var> outputs = rewriter_.builder().apply_many(
        operation.kind, std::move(inputs), operation.outputs.size() + (leaves_a_cast ? 1 : 0),
        attributes);
    if (leaves_a_cast) {
      cache_[{kOutside, operation.inputs[1]}] = std::move(outputs.back());
      outputs.pop_back();
    }
    return outputs;
  }

  Var cast(const Operation& operation, size_t input, DType dtype) {
    const ValueId id = operation.inputs[input];
    const bool is_cached = dtype == options_.dtype && cacheable_[id];
    const uint32_t index = rewriter_.index_of(operation);
    const bool is_head_weight = in_head_[index] && is_parameter_[id];
    const auto make = [&] {
      return is_head_weight ? cast_within(RegionKind::head_weight, id, dtype) : cast_of(id, dtype);
    };
    if (!is_cached) return make();
    auto [entry, is_new] = cache_.try_emplace({layers_[index], id});
    if (is_new) entry->second = make();
    return entry->second;
  }

  // In a region of its own, which says what the copy is for.
  Var cast_within(RegionKind kind, ValueId id, DType dtype) {
    model::Region region;
    region.kind = kind;
    region.name = "lm_head";
    const uint32_t entered = rewriter_.builder().enter(std::move(region));
    Var copy = cast_of(id, dtype);
    rewriter_.builder().leave(entered);
    return copy;
  }

  Var cast_of(ValueId id, DType dtype) {
    Attributes attributes;
    attributes.dtype = dtype;
    return rewriter_.builder().apply(OpKind::autocast, {rewriter_.value(id)}, attributes);
  }

  // The context exits, then the outputs are converted: all of them, before the first one goes.
  void leave() {
    cache_.clear();
    if (!options_.outputs_to_float32) return;
    std::vector<ValueId> outputs = graph_.outputs;
    if (graph_.logits != model::kNoValue) outputs.insert(outputs.begin(), graph_.logits);
    std::vector<Var> converted;
    for (const ValueId id : outputs) {
      const bool is_logits = id == graph_.logits;
      converted.push_back(is_logits ? cast_within(RegionKind::logits, id, DType::f32)
                                    : cast_of(id, DType::f32));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      rewriter_.builder().drop(rewriter_.value(outputs[i]).id());
      rewriter_.set_output(outputs[i], rewriter_.builder().release(std::move(converted[i])));
    }
  }

  const Graph& graph_;
  const AutocastOptions& options_;
  GraphRewriter rewriter_;
  std::vector<uint32_t> layers_;
  std::vector<bool> in_head_;                          // by operation
  std::vector<bool> is_parameter_;                     // by value
  std::vector<bool> cacheable_;                        // by value: trainable parameters in float32
  std::map<std::pair<uint32_t, ValueId>, Var> cache_;  // by layer and parameter
};

}  // namespace

Graph apply_autocast(const Graph& graph, const AutocastOptions& options) {
  return AutocastWriter(graph, options).run();
}

}  // namespace headroom::step
