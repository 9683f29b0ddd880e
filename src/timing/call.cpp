#include "timing/call.h"

#include "base/check.h"

namespace headroom::timing {

namespace {

constexpr std::array<std::string_view, kOperatorClasses> kNames{
    "gemm",        "gemm_fp32",       "linear_int8", "attention_decode", "attention_prefill",
    "elementwise", "permuted_copy",   "activation",  "gelu_tanh",        "normalization",
    "softmax",     "rms_norm",        "rope",        "gated_activation", "embedding",
    "all_reduce",  "all_reduce_graph"};

}  // namespace

std::string_view name_of(OperatorClass kind) { return kNames[static_cast<size_t>(kind)]; }

bool is_of_processors(OperatorClass kind) {
  return kind == OperatorClass::linear_int8 || stands_for(kind) != kind;
}

OperatorClass stands_for(OperatorClass kind) {
  switch (kind) {
    case OperatorClass::gelu_tanh:
      return OperatorClass::activation;
    case OperatorClass::permuted_copy:
    case OperatorClass::activation:
      return OperatorClass::elementwise;
    default:
      return kind;
  }
}

std::optional<OperatorClass> parse_operator_class(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<OperatorClass>(i);
  }
  return std::nullopt;
}

Call gemm_call(const GemmShape& shape, device::Rate rate, double element_bytes) {
  HEADROOM_CHECK(shape.batch > 0 && shape.m > 0 && shape.n > 0 && shape.k > 0, "empty product");
  const double m = static_cast<double>(shape.m);
  const double n = static_cast<double>(shape.n);
  const double k = static_cast<double>(shape.k);
  const double batch = static_cast<double>(shape.batch);
  const OperatorClass kind =
      rate == device::Rate::fp32 ? OperatorClass::gemm_fp32 : OperatorClass::gemm;
  return {kind,  rate, 2 * batch * m * n * k, element_bytes * batch * (m * k + k * n + m * n),
          false, shape};
}

Call linear_int8_call(const GemmShape& shape, double element_bytes) {
  Call call = gemm_call(shape, device::Rate::int8, 1);
  call.kind = OperatorClass::linear_int8;
  const double floats = static_cast<double>(shape.m) * static_cast<double>(shape.k + shape.n);
  const double weights = static_cast<double>(shape.n) * static_cast<double>(shape.k);
  call.bytes = static_cast<double>(shape.batch) * (element_bytes * floats + weights);
  return call;
}

Call attention_call(const AttentionShape& shape, device::Rate rate, double element_bytes) {
  HEADROOM_CHECK(shape.batch > 0 && shape.heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0 &&
                     shape.queries > 0 && shape.context > 0,
                 "empty attention");
  const double queries = static_cast<double>(shape.queries);
  const double context = static_cast<double>(shape.context);
  const double heads = static_cast<double>(shape.heads * shape.head_dim);
  const double kv_heads = static_cast<double>(shape.kv_heads * shape.head_dim);
  const double batch = static_cast<double>(shape.batch);
  const double pairs = shape.is_causal && context >= queries
                           ? queries * (context - queries) + queries * (queries + 1) / 2
                           : queries * context;
  const OperatorClass kind =
      shape.queries == 1 ? OperatorClass::attention_decode : OperatorClass::attention_prefill;
  return {kind,
          rate,
          4 * batch * heads * pairs,
          element_bytes * batch * (2 * queries * heads + 2 * context * kv_heads),
          false,
          shape};
}

Call all_reduce_call(OperatorClass kind, const CollectiveShape& shape) {
  HEADROOM_CHECK(kind == OperatorClass::all_reduce || kind == OperatorClass::all_reduce_graph,
                 "not a collective");
  HEADROOM_CHECK(shape.group >= 2 && shape.message > 0, "nothing to reduce");
  const double group = static_cast<double>(shape.group);
  const double sent = 2 * (group - 1) / group * static_cast<double>(shape.message);
  return {kind, device::Rate::bf16, 0, sent, false, shape};
}

Call rows_call(OperatorClass kind, const RowsShape& shape, double bytes) {
  HEADROOM_CHECK(shape.rows > 0 && shape.width > 0 && bytes > 0, "empty operator");
  return {kind, device::Rate::fp32, 0, bytes, false, shape};
}

}  // namespace headroom::timing
