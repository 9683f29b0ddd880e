#include "timing/operator_work.h"

#include <algorithm>
#include <cmath>

#include "model/language_part.h"

namespace headroom::timing {

namespace {

using device::Rate;
using op::OpGroup;

int64_t whole(double value) { return std::max<int64_t>(1, std::llround(value)); }

double element_size(const OperatorWork& work, const StepShape& shape) {
  if (work.element_bytes > 0) return work.element_bytes;
  return static_cast<double>(op::element_size(shape.type));
}

// Of a step's operators those with operands of one byte are Transformer Engine's in FP8; what comes
// out is in the step's type (operator/transformer_engine_fp8.h).
bool is_fp8_product(const OperatorWork& work) {
  return work.kind == op::OpKind::mm && work.element_bytes == 1;
}

// What comes out are whole numbers of 32 bits (operator/quantized.cpp).
bool is_int8_product(const OperatorWork& work) { return work.kind == op::OpKind::int8_mm; }

double size_of_result(const OperatorWork& work, const StepShape& shape) {
  if (is_int8_product(work)) return 4;
  return is_fp8_product(work) ? static_cast<double>(op::element_size(shape.type))
                              : element_size(work, shape);
}

// Half precision is the step's where that has one: the devices' rates of the two are alike.
Rate rate_of(const OperatorWork& work, const StepShape& shape) {
  if (is_fp8_product(work)) return Rate::fp8;
  if (is_int8_product(work)) return Rate::int8;
  if (work.element_bytes == 2) return shape.type == op::DType::f16 ? Rate::fp16 : Rate::bf16;
  if (work.element_bytes == 4) return Rate::fp32;
  return timing::rate_of(shape.type);
}

constexpr double kMostSequence = 1e9;

Call attention_call_of(const OperatorWork& work, const StepShape& shape) {
  constexpr int64_t kUsualHead = 64;
  const double element = element_size(work, shape);
  // Where nothing says how long a sequence is: a query and a key cost four operations an element.
  const double paired =
      std::min(work.flops * element / (4 * std::max(work.bytes_written, 1.0)), kMostSequence);
  const int64_t usual = std::max<int64_t>(shape.sequence > 0 ? shape.sequence : whole(paired), 2);
  const int64_t sequences =
      shape.sequence > 0 ? std::max<int64_t>(shape.tokens / usual, 1) : shape.tokens;
  const int64_t queries = work.rows > 0 ? work.rows : usual;
  const int64_t keys = work.keys > 0 ? work.keys : usual;
  const double tokens = work.rows > 0 || shape.sequence <= 0
                            ? static_cast<double>(sequences) * static_cast<double>(queries)
                            : static_cast<double>(shape.tokens);
  const int64_t width = whole(work.bytes_written / (element * tokens));
  const int64_t heads =
      std::clamp<int64_t>(shape.heads > 0 ? shape.heads : width / kUsualHead, 1, width);
  const AttentionShape sizes{
      .batch = sequences,
      .heads = heads,
      .kv_heads = shape.kv_heads > 0 ? std::min(shape.kv_heads, heads) : heads,
      .head_dim = std::max<int64_t>(width / heads, 1),
      .queries = queries,
      .context = keys};
  Call made = attention_call(sizes, rate_of(work, shape), element);
  made.flops = work.flops;
  made.bytes = work.bytes_read + work.bytes_written;
  return made;
}

OperatorClass class_of(OpGroup group) {
  switch (group) {
    case OpGroup::activation:
      return OperatorClass::activation;
    case OpGroup::normalization:
      return OperatorClass::normalization;
    case OpGroup::softmax:
    case OpGroup::loss:
      return OperatorClass::softmax;
    case OpGroup::embedding:
      return OperatorClass::embedding;
    default:
      return OperatorClass::elementwise;
  }
}

// A copy that turns its source over is one as a whole; other operators have one within.
bool is_permuted_copy(const OperatorWork& work) {
  return work.group == OpGroup::memory && work.permuted.run > 0;
}

// What the group alone does not say.
OperatorClass class_of(const OperatorWork& work) {
  if (is_permuted_copy(work)) return OperatorClass::permuted_copy;
  // What gelu_tanh computes for longest is the tanh, by the same function (Sleef's tanh in ATen's
  // Vectorized, 2.13).
  if (work.kind == op::OpKind::gelu_tanh || work.kind == op::OpKind::tanh) {
    return OperatorClass::gelu_tanh;
  }
  return class_of(work.group);
}

constexpr int64_t kMostHeads = 1'000'000;

// The first of these that the configuration has; 0 where it has none.
Result<int64_t> heads_of(const text::JsonView& config,
                         std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    HEADROOM_ASSIGN(const auto heads, config.optional_int(key, 1, kMostHeads));
    if (heads) return *heads;
  }
  return int64_t{0};
}

}  // namespace

OperatorWork work_of(const step::OperatorCall& call) {
  return {op::group_of(call.kind),
          call.flops,
          static_cast<double>(call.bytes_read),
          static_cast<double>(call.bytes_written),
          call.element_bytes,
          call.rows,
          call.keys,
          call.permuted,
          call.has_bias,
          call.kind};
}

std::span<const step::OperatorCall> last_step(const step::StepTrace& trace) {
  size_t first = 0;
  int last_iteration = 0;
  for (const step::PhaseMark& mark : trace.phases) {
    if (mark.iteration <= last_iteration) continue;
    last_iteration = mark.iteration;
    first = mark.first_call;
  }
  return std::span(trace.calls).subspan(std::min(first, trace.calls.size()));
}

Result<void> read_heads(const text::JsonView& config, StepShape& shape) {
  HEADROOM_ASSIGN(const text::JsonView language, model::language_part(config));
  HEADROOM_ASSIGN(shape.heads,
                  heads_of(language, {"num_attention_heads", "n_head", "n_heads", "num_heads"}));
  HEADROOM_ASSIGN(shape.kv_heads, heads_of(language, {"num_key_value_heads"}));
  if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
  return {};
}

Rate rate_of(op::DType type) {
  if (type == op::DType::f16) return Rate::fp16;
  return type == op::DType::f32 ? Rate::fp32 : Rate::bf16;
}

GemmShape product_shape(const OperatorWork& work, const StepShape& shape) {
  const double element = element_size(work, shape);
  const double results = std::max(work.bytes_written / size_of_result(work, shape), 1.0);
  const double k = std::max(work.flops / (2 * results), 1.0);
  if (work.rows > 0) {
    return {.m = work.rows, .n = whole(results / static_cast<double>(work.rows)), .k = whole(k)};
  }
  const double sum = work.bytes_read / element / k;
  const double root = std::sqrt(std::max(sum * sum / 4 - results, 0.0));
  double m = sum / 2 + root;
  double n = results / std::max(m, 1.0);
  const auto tokens = static_cast<double>(shape.tokens);
  if (std::abs(n - tokens) < std::abs(m - tokens)) std::swap(m, n);
  return {.m = whole(m), .n = whole(n), .k = whole(k)};
}

Call product_call(const OperatorWork& work, const StepShape& shape, Rate rate) {
  Call made = gemm_call(product_shape(work, shape), rate, element_size(work, shape));
  made.flops = work.flops;
  made.bytes = work.bytes_read + work.bytes_written;
  return made;
}

Call permuted_copy_call(const op::Permuted& permuted, double element_bytes) {
  const auto bytes = static_cast<double>(permuted.bytes);
  const double runs = bytes / element_bytes / static_cast<double>(permuted.run);
  return rows_call(OperatorClass::permuted_copy, {whole(runs), permuted.run}, 2 * bytes);
}

Call rows_call_of(OpGroup group, double read, double written, const StepShape& shape) {
  return rows_call_of({.group = group, .bytes_read = read, .bytes_written = written}, shape);
}

Call rows_call_of(const OperatorWork& work, const StepShape& shape) {
  const double elements = std::max(work.bytes_read, work.bytes_written) /
                          static_cast<double>(op::element_size(shape.type));
  if (is_permuted_copy(work)) return permuted_copy_call(work.permuted, element_size(work, shape));
  const int64_t rows = std::min(work.rows > 0 ? work.rows : shape.tokens, whole(elements));
  const RowsShape sizes{rows, whole(elements / static_cast<double>(rows))};
  return rows_call(class_of(work), sizes, work.bytes_read + work.bytes_written);
}

Call call_of(const OperatorWork& work, const StepShape& shape) {
  const bool computes = work.flops > 0;
  if (work.group == OpGroup::gemm && computes) {
    return product_call(work, shape, rate_of(work, shape));
  }
  if (work.group == OpGroup::attention && computes) return attention_call_of(work, shape);
  return rows_call_of(work, shape);
}

void TimeSum::add(const PredictedTime& time, int64_t times) {
  const auto count = static_cast<double>(times);
  low += count * time.seconds_low;
  middle += count * time.seconds;
  high += count * time.seconds_high;
  const Provenance one = std::max(time.provenance, floor);
  if (one > provenance) longest = 0;  // why the whole is no better than that
  provenance = std::max(provenance, one);
  if (one < provenance || count * time.seconds <= longest) return;
  longest = count * time.seconds;
  basis = time.basis;
}

}  // namespace headroom::timing
