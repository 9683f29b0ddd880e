#include "step/fused_operations.h"

#include "operator/megatron.h"
#include "operator/transformer_engine_fp8.h"
#include "step/head_in_chunks.h"

namespace headroom::step {

using model::Attributes;
using op::Eager;
using op::OpKind;
using op::Tensor;

namespace {

op::Gathers gathers_of(const model::Attributes& attributes) {
  return attributes.flag ? op::Gathers::in_float8 : op::Gathers::as_it_is;
}

constexpr size_t kNumbersOfABase = 4;
constexpr size_t kInputsOfAModule = 4;

op::Version version_of(const Attributes& a) {
  return {static_cast<int>(a.ints[0]), static_cast<int>(a.ints[1])};
}

std::vector<op::FastLoraModule> modules_of(const Attributes& a, std::span<const Tensor> in) {
  std::vector<op::FastLoraModule> modules(a.ints.size() / kNumbersOfABase);
  for (size_t i = 0; i < modules.size(); ++i) {
    const int64_t* numbers = &a.ints[kNumbersOfABase * i];
    op::FastLoraModule& module = modules[i];
    module.base.format = static_cast<op::QuantizedFormat>(numbers[0]);
    module.base.in = numbers[1];
    module.base.out = numbers[2];
    module.base.unpacked = static_cast<op::DType>(numbers[3]);
    const size_t weight = 1 + kInputsOfAModule * i;
    module.a = in[weight + 1];
    module.b = in[weight + 2];
    module.bias = in[weight + 3];
  }
  return modules;
}

// In FP8 the recipe follows, and whether what comes in is kept as it is (model/megatron_fp8.h).
op::ParallelLinear parallel_of(const Attributes& a) {
  op::ParallelLinear module{a.ints[0], a.ints[1] != 0, a.ints[2] != 0};
  if (a.ints.size() > 3) {
    module.fp8 = static_cast<op::Fp8Recipe>(a.ints[3]);
    module.keeps_original = a.ints[4] != 0;
  }
  return module;
}

bool is_in_fp8(const Attributes& a) {
  return a.ints.size() > 3 && parallel_of(a).fp8 != op::Fp8Recipe::none;
}

Tensor run_fp8(Eager& e, const model::Operation& operation, std::span<const Tensor> in) {
  const op::ParallelLinear module = parallel_of(operation.attributes);
  switch (operation.kind) {
    case OpKind::te_norm_linear:
      return op::te_fp8_norm_linear(e, in[0], in[1], in[2], in[3], in[4], module);
    case OpKind::te_column_linear:
      return op::te_fp8_column_linear(e, in[0], in[1], in[2], module);
    case OpKind::te_row_linear:
      return op::te_fp8_row_linear(e, in[0], in[1], module);
    default:
      return op::te_fp8_grouped_linear(e, in[0], in.subspan(1), module);
  }
}

bool is_te_linear(OpKind kind) {
  return kind == OpKind::te_norm_linear || kind == OpKind::te_column_linear ||
         kind == OpKind::te_row_linear || kind == OpKind::te_grouped_linear;
}

Tensor run_megatron(Eager& e, const model::Operation& operation, std::span<const Tensor> in) {
  const Attributes& a = operation.attributes;
  if (is_te_linear(operation.kind) && is_in_fp8(a)) return run_fp8(e, operation, in);
  switch (operation.kind) {
    case OpKind::te_norm_linear:
      return op::te_norm_linear(e, in[0], in[1], in[2], in[3], in[4], parallel_of(a));
    case OpKind::te_column_linear:
      return op::te_column_linear(e, in[0], in[1], in[2], parallel_of(a));
    case OpKind::te_row_linear:
      return op::te_row_linear(e, in[0], in[1], parallel_of(a));
    case OpKind::te_grouped_linear:
      return op::te_grouped_linear(e, in[0], in.subspan(1), parallel_of(a));
    case OpKind::expert_router:
      return op::expert_router(e, in[0], in[1], a.ints[0], a.flag);
    case OpKind::expert_combine:
      return op::expert_combine(e, in[0], in[1], a.ints[0], a.flag);
    case OpKind::sequence_gather:
      return op::sequence_gather(e, in[0], in[1], a.ints[0]);
    case OpKind::sequence_scatter:
      return op::sequence_scatter(e, in[0], a.ints[0]);
    case OpKind::te_norm:
      return op::te_norm(e, in[0], in[1], in[2]);
    case OpKind::te_rotary:
      return op::te_rotary(e, in[0], in[1]);
    case OpKind::te_causal_softmax:
      return op::te_causal_softmax(e, in[0]);
    case OpKind::te_ring_attention:
      return op::te_ring_attention(e, in[0], in[1], in[2], a.ints[0],
                                   a.flag ? op::RingKernels::cudnn : op::RingKernels::flash_attn);
    case OpKind::te_fused_attention:
      return op::te_fused_attention(e, in[0], in[1], in[2], a.flag);
    case OpKind::bias_dropout_add:
      return op::bias_dropout_add(e, in[0], in[1], in[2], a.number);
    case OpKind::bias_gelu:
      return op::bias_gelu(e, in[0], in[1]);
    case OpKind::bias_swiglu:
      return op::bias_swiglu(e, in[0], in[1]);
    case OpKind::weighted_swiglu:
      return op::weighted_swiglu(e, in[0], in[1]);
    case OpKind::column_linear:
      return op::column_linear(e, in[0], in[1], in[2], in[3], parallel_of(a));
    case OpKind::parallel_cross_entropy:
      return op::parallel_cross_entropy(e, in[0], in[1], a.flag);
    default:
      return {};
  }
}

}  // namespace

Attributes attributes_of(const op::LigerNorm& norm) {
  Attributes attributes;
  attributes.ints = {norm.liger.major, norm.liger.minor};
  attributes.flag = norm.in_place;
  return attributes;
}

Attributes attributes_of(const op::LigerLinearLoss& loss) {
  Attributes attributes;
  attributes.ints = {loss.liger.major, loss.liger.minor};
  attributes.flag = loss.float32_accumulation;
  attributes.dtype = loss.autocast;
  return attributes;
}

Attributes fast_lora_attributes(std::span<const op::QuantizedLinear> bases, double dropout) {
  Attributes attributes;
  for (const op::QuantizedLinear& base : bases) {
    for (const int64_t number : {static_cast<int64_t>(base.format), base.in, base.out,
                                 static_cast<int64_t>(base.unpacked)}) {
      attributes.ints.push_back(number);
    }
  }
  attributes.number = dropout;
  return attributes;
}

std::vector<Tensor> run_fused(Eager& e, const model::Operation& operation,
                              std::span<const Tensor> in) {
  const Attributes& a = operation.attributes;
  switch (operation.kind) {
    case OpKind::liger_rms_norm:
      return {op::liger_rms_norm(e, in[0], in[1], {version_of(a), a.flag})};
    case OpKind::liger_rotary: {
      auto [query, key] = op::liger_rotary(e, in[0], in[1], in[2], in[3]);
      return {std::move(query), std::move(key)};
    }
    case OpKind::liger_gated:
      return {op::liger_gated(e, in[0], in[1])};
    case OpKind::liger_cross_entropy:
      return {op::liger_cross_entropy(e, in[0], in[1])};
    case OpKind::liger_linear_loss: {
      auto made =
          op::liger_linear_loss(e, in[0], in[1], in[2], in[3], {version_of(a), a.flag, a.dtype});
      return {std::move(made.loss), std::move(made.cast_weight)};
    }
    case OpKind::parallel_input:
      return {op::parallel_input(e, in[0])};
    case OpKind::parallel_weight:
      return {op::parallel_weight(e, in[0])};
    case OpKind::parallel_bias:
      return {op::parallel_bias(e, in[0])};
    case OpKind::parallel_sum:
      return {op::parallel_sum(e, in[0])};
    case OpKind::parallel_reduce:
      return {op::parallel_reduce(e, in[0])};
    case OpKind::parallel_gather:
      return {op::parallel_gather(e, in[0], a.ints[0], a.ints[1])};
    case OpKind::parallel_split:
      return {op::parallel_split(e, in[0], a.ints[0])};
    case OpKind::parallel_embedding:
      return {op::parallel_embedding(
          e, in[0], in[1], {a.ints[0], static_cast<op::RowsGradient>(a.ints[1]), a.ints[2]})};
    case OpKind::parallel_gather_sequence:
      return {op::parallel_gather_sequence(e, in[0], a.ints[0], gathers_of(a))};
    case OpKind::parallel_scatter_sequence:
      return {op::parallel_scatter_sequence(e, in[0], a.ints[0], gathers_of(a))};
    case OpKind::head_in_chunks:
      return {head_in_chunks(e, in[0], in[1], in[2], HeadInChunks::from(a))};
    case OpKind::read_back:
      return {op::read_back(e, in[0])};
    case OpKind::exchange_rows:
      return {op::exchange_rows(e, in[0], a.ints[0])};
    case OpKind::parallel_loss:
      return {op::parallel_loss(e, in[0], in[1])};
    case OpKind::fast_rms_norm:
      return {op::fast_rms_norm(e, in[0], in[1])};
    case OpKind::fast_rotary:
      return {op::fast_rotary(e, in[0], in[1], in[2])};
    case OpKind::fast_cross_entropy:
      return {op::fast_cross_entropy(e, in[0], in[1])};
    case OpKind::latent_keys:
      return op::latent_keys(e, in[0], in[1], a.ints[0]);
    case OpKind::fast_lora:
      return op::fast_lora(e, in[0], modules_of(a, in), {a.number, a.dtype});
    case OpKind::fast_lora_mlp:
      return {op::fast_lora_mlp(e, in[0], modules_of(a, in), {a.number, a.dtype})};
    default:
      break;
  }
  if (Tensor out = run_megatron(e, operation, in)) return {std::move(out)};
  return {};
}

}  // namespace headroom::step
