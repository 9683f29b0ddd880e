// The operators, by PyTorch's names, and the groups that NonGEMM Bench sorts them into.
//
// One vocabulary for a model's graph, for the kernels that a step launches, and for traces.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::op {

// NonGEMM Bench (arXiv 2404.11788), with attention, the optimizer and collectives apart.
enum class OpGroup : uint8_t {
  gemm,
  attention,
  normalization,
  activation,
  elementwise,
  memory,
  softmax,
  embedding,
  loss,
  quantize,
  routing,
  optimizer,
  communication,
  none,  // views and bookkeeping: no kernel
};

// X(name, group)
#define HEADROOM_OPS(X)              \
  X(linear, gemm)                    \
  X(mm, gemm)                        \
  X(addmm, gemm)                     \
  X(bmm, gemm)                       \
  X(baddbmm, gemm)                   \
  X(matmul, gemm)                    \
  X(convolution, gemm)               \
  X(grouped_mm, gemm)                \
  X(quantized_linear, gemm)          \
  X(int8_mm, gemm)                   \
  X(float8_linear, gemm)             \
  X(solve_triangular, gemm)          \
  X(sdpa, attention)                 \
  X(flash_attention, attention)      \
  X(ring_attention, attention)       \
  X(layer_norm, normalization)       \
  X(rms_norm, normalization)         \
  X(gelu, activation)                \
  X(gelu_tanh, activation)           \
  X(gelu_bloom, activation)          \
  X(silu, activation)                \
  X(relu, activation)                \
  X(sigmoid, activation)             \
  X(tanh, activation)                \
  X(add, elementwise)                \
  X(sub, elementwise)                \
  X(mul, elementwise)                \
  X(div, elementwise)                \
  X(neg, elementwise)                \
  X(pow, elementwise)                \
  X(sqrt, elementwise)               \
  X(rsqrt, elementwise)              \
  X(add_assign, elementwise)         \
  X(mul_assign, elementwise)         \
  X(div_assign, elementwise)         \
  X(floor_divide, elementwise)       \
  X(max, elementwise)                \
  X(exp, elementwise)                \
  X(log, elementwise)                \
  X(sin, elementwise)                \
  X(cos, elementwise)                \
  X(polar, elementwise)              \
  X(softplus, activation)            \
  X(clamp, elementwise)              \
  X(maximum, elementwise)            \
  X(where, elementwise)              \
  X(masked_fill, elementwise)        \
  X(compare, elementwise)            \
  X(logical, elementwise)            \
  X(dropout, elementwise)            \
  X(cast, memory)                    \
  X(clone, memory)                   \
  X(copy, memory)                    \
  X(fill, memory)                    \
  X(cat, memory)                     \
  X(stack, memory)                   \
  X(pad, memory)                     \
  X(roll, memory)                    \
  X(repeat, memory)                  \
  X(triangle, memory)                \
  X(arange, memory)                  \
  X(sum, elementwise)                \
  X(mean, elementwise)               \
  X(amax, elementwise)               \
  X(argmax, elementwise)             \
  X(vector_norm, elementwise)        \
  X(cumsum, elementwise)             \
  X(softmax, softmax)                \
  X(log_softmax, softmax)            \
  X(embedding, embedding)            \
  X(index_select, memory)            \
  X(index, memory)                   \
  X(index_put, memory)               \
  X(index_add, memory)               \
  X(index_add_assign, memory)        \
  X(copy_slice, memory)              \
  X(copy_select, memory)             \
  X(gather, memory)                  \
  X(scatter, memory)                 \
  X(topk, routing)                   \
  X(sort, routing)                   \
  X(one_hot, routing)                \
  X(nonzero, routing)                \
  X(histogram, routing)              \
  X(sparse_mixer, routing)           \
  X(nll_loss, loss)                  \
  X(cross_entropy, loss)             \
  X(fused_kernel, elementwise)       \
  X(liger_rms_norm, normalization)   \
  X(liger_layer_norm, normalization) \
  X(liger_rotary, elementwise)       \
  X(liger_gated, activation)         \
  X(liger_cross_entropy, loss)       \
  X(liger_linear_loss, loss)         \
  X(fast_rms_norm, normalization)    \
  X(fast_rotary, elementwise)        \
  X(fast_cross_entropy, loss)        \
  X(fast_lora, gemm)                 \
  X(fast_lora_mlp, gemm)             \
  X(te_norm_linear, gemm)            \
  X(te_column_linear, gemm)          \
  X(te_row_linear, gemm)             \
  X(te_grouped_linear, gemm)         \
  X(te_norm, normalization)          \
  X(expert_router, routing)          \
  X(expert_combine, routing)         \
  X(sequence_gather, communication)  \
  X(sequence_scatter, communication) \
  X(te_rotary, elementwise)          \
  X(latent_keys, elementwise)        \
  X(te_causal_softmax, softmax)      \
  X(te_ring_attention, attention)    \
  X(te_fused_attention, attention)   \
  X(bias_dropout_add, elementwise)   \
  X(bias_gelu, activation)           \
  X(bias_swiglu, activation)         \
  X(weighted_swiglu, activation)     \
  X(column_linear, gemm)             \
  X(parallel_cross_entropy, loss)    \
  X(dequantize, quantize)            \
  X(quantize, quantize)              \
  X(optimizer_update, optimizer)     \
  X(all_gather, communication)       \
  X(reduce_scatter, communication)   \
  X(all_reduce, communication)       \
  X(send_receive, communication)     \
  X(all_to_all, communication)       \
  X(read_back, memory)               \
  X(parallel_input, none)            \
  X(parallel_weight, none)           \
  X(parallel_bias, none)             \
  X(parallel_sum, none)              \
  X(parallel_reduce, none)           \
  X(parallel_gather, none)           \
  X(parallel_split, none)            \
  X(parallel_embedding, none)        \
  X(parallel_gather_sequence, none)  \
  X(parallel_scatter_sequence, none) \
  X(parallel_loss, none)             \
  X(exchange_rows, none)             \
  X(head_in_chunks, none)            \
  X(empty, none)                     \
  X(view, none)                      \
  X(reshape, none)                   \
  X(transpose, none)                 \
  X(permute, none)                   \
  X(expand, none)                    \
  X(unsqueeze, none)                 \
  X(squeeze, none)                   \
  X(slice, none)                     \
  X(select, none)                    \
  X(split, none)                     \
  X(contiguous, none)                \
  X(detach, none)                    \
  X(require_grad, none)              \
  X(dtype_of, none)                  \
  X(view_as_real, none)              \
  X(view_as_complex, none)           \
  X(cast_like, memory)               \
  X(autocast, memory)                \
  X(opaque, elementwise)

enum class OpKind : uint8_t {
#define HEADROOM_OP_KIND(name, group) name,
  HEADROOM_OPS(HEADROOM_OP_KIND)
#undef HEADROOM_OP_KIND
};

[[nodiscard]] std::string_view name_of(OpKind kind);
[[nodiscard]] OpGroup group_of(OpKind kind);
[[nodiscard]] std::string_view name_of(OpGroup group);
[[nodiscard]] std::optional<OpKind> parse_op_kind(std::string_view name);

}  // namespace headroom::op
