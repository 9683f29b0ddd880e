// Call: one operator to be timed, as the laws see it: what it does, how much, and in which shape.
//
// Plain values; thread-safe. The counts are those of the step model (operator/sink.h): bytes that
// must move at least once, a multiply-add as two operations.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "device/device.h"

namespace headroom::timing {

// What has a law of its own: operators whose kernels use the machine alike.
enum class OperatorClass : uint8_t {
  gemm,       // in tensor cores
  gemm_fp32,  // without them
  // A linear layer as a processor's engine runs it in int8: floats go in, are quantized, meet
  // weights of one byte, and floats come out. Of machines alone that were measured (docs:
  // calibration).
  linear_int8,
  attention_decode,
  attention_prefill,
  elementwise,
  permuted_copy,  // with another innermost dimension than its source (op::Permuted)
  activation,     // GELU: on a processor it computes longer than it moves
  gelu_tanh,      // its approximation, which PyTorch computes five times as long there
  normalization,  // PyTorch's layer_norm
  softmax,
  rms_norm,  // one fused kernel, as serving engines have it
  rope,
  gated_activation,
  embedding,
  all_reduce,        // NCCL's, within one server, launched by the host
  all_reduce_graph,  // a serving engine's own kernel over NVLink, inside a CUDA graph
};
inline constexpr size_t kOperatorClasses = 17;
[[nodiscard]] std::string_view name_of(OperatorClass kind);
// Of processors that were measured, and of nothing else.
[[nodiscard]] bool is_of_processors(OperatorClass kind);
// By whose law a class is timed where it has none of its own; itself, where by no other's.
[[nodiscard]] OperatorClass stands_for(OperatorClass kind);
[[nodiscard]] std::optional<OperatorClass> parse_operator_class(std::string_view name);

// `batch` products of m x k by k x n; m counts tokens.
struct GemmShape {
  int64_t batch = 1;
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
};

// The last `queries` tokens of each of `batch` sequences of `context` tokens, causal, or each
// seeing the whole. More queries than context, as cross-attention may have, all see the whole of
// it.
struct AttentionShape {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
  int64_t queries = 1;
  int64_t context = 1;
  bool is_causal = true;
};

// Everything that goes row by row.
struct RowsShape {
  int64_t rows = 1;
  int64_t width = 1;
};

// `message` bytes, reduced among `group` devices.
struct CollectiveShape {
  int64_t group = 2;
  int64_t message = 1;
};

struct Call {
  OperatorClass kind{};
  device::Rate rate = device::Rate::bf16;  // of the arithmetic; of no account where flops is 0
  double flops = 0;
  double bytes = 0;  // of collectives: what each device sends
  // An operator without a law, timed by that of one like it (a convolution as a product): as far
  // from the law's tables as a device that it never saw.
  bool is_stand_in = false;
  std::variant<GemmShape, AttentionShape, RowsShape, CollectiveShape> shape;
};

// Calls with their work counted. `element_bytes` is the size of every operand.
// REQUIRES: every dimension is positive.
[[nodiscard]] Call gemm_call(const GemmShape& shape, device::Rate rate, double element_bytes);
// linear_int8; `element_bytes` is the size of what goes in and comes out.
[[nodiscard]] Call linear_int8_call(const GemmShape& shape, double element_bytes);
// attention_decode where there is one query, else attention_prefill.
[[nodiscard]] Call attention_call(const AttentionShape& shape, device::Rate rate,
                                  double element_bytes);
// all_reduce or all_reduce_graph: a device sends 2 (group - 1) / group of the message, as in a
// ring. REQUIRES: two devices at least.
[[nodiscard]] Call all_reduce_call(OperatorClass kind, const CollectiveShape& shape);
// `bytes` in all, read and written.
[[nodiscard]] Call rows_call(OperatorClass kind, const RowsShape& shape, double bytes);

}  // namespace headroom::timing
