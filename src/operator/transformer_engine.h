// NVIDIA Transformer Engine's modules as operators: what each keeps for backward and what it takes
// inside, in 16- or 32-bit types (FP8: transformer_engine_fp8.h). Tensors are [sequence, batch,
// features], on one rank of a group that divides a layer's matrices ("tensor parallel").
//
// With `sequence_parallel` what lies between the matrices is divided along the sequence: a column
// parallel layer gathers its input, and again in backward; a row parallel one scatters its output.
// The library's own workspace for products is whoever builds the graph's to make. What its kernels
// for norms' weights take inside (some hundred kilobytes) is not counted.
//
// Source: transformer_engine/pytorch/module/{layernorm_linear,linear}.py,
// attention/dot_product_attention/{backends,context_parallel,softmax}.py, versions 2.9 and of
// August 2026. Shapes are not checked here, as in functional.h.
#pragma once

#include <span>

#include "operator/eager.h"
#include "operator/fp8.h"

namespace headroom::op {

struct ParallelLinear {
  int64_t ranks = 1;  // that the matrix is divided among
  bool sequence_parallel = false;
  // The weight's gradient is added to a buffer that is there already (fuse_wgrad_accumulation).
  bool fused_accumulation = false;
  Fp8Recipe fp8 = Fp8Recipe::none;
  // In FP8: what came in is kept, since others keep it as well (save_original_input).
  bool keeps_original = false;
};

// Column parallel, behind a LayerNorm (an RMSNorm where there is no norm_bias): input
// [s or s / ranks, b, in], weight [out / ranks, in], bias [out / ranks] or undefined; gives
// [s, b, out / ranks].
Tensor te_norm_linear(Eager& e, const Tensor& input, const Tensor& norm_weight,
                      const Tensor& norm_bias, const Tensor& weight, const Tensor& bias,
                      const ParallelLinear& module);

// Column parallel by itself: as above, without the norm; bias may be undefined. An input that is a
// part of a larger block is kept as that.
Tensor te_column_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ParallelLinear& module);

// Row parallel, its bias left to who comes behind it: input [s, b, in / ranks], weight
// [out, in / ranks]; gives [s or s / ranks, b, out].
Tensor te_row_linear(Eager& e, const Tensor& input, const Tensor& weight,
                     const ParallelLinear& module);

// GroupedLinear: rows [n, in], sorted by group, by a matrix [out, in] a group; gives [n, out].
Tensor te_grouped_linear(Eager& e, const Tensor& rows, std::span<const Tensor> weights,
                         const ParallelLinear& module);

// A norm by itself; RMSNorm where there is no bias.
Tensor te_norm(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias);

// FusedRoPEFunc: x [s, b, heads, d] turned by angles that are kept; a new tensor both ways.
Tensor te_rotary(Eager& e, const Tensor& x, const Tensor& angles);

// Scale, causal mask and softmax over [batch * heads, s, s]; backward writes over the gradient.
Tensor te_causal_softmax(Eager& e, const Tensor& scores);

// Ring attention over `ranks` ranks, two or more, that hold a part of the sequence each
// (cp_comm_type p2p), causal, on the last of them; all three contiguous. To flash_attn: query
// [b, s, heads, d], values as wide as keys. To cuDNN: query [s, b, heads, d], values of any width.
// Key and value may have fewer heads; gives the query's sizes, as wide as the values.
enum class RingKernels : uint8_t { flash_attn, cudnn };
Tensor te_ring_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                         int64_t ranks, RingKernels kernels);

// cuDNN's attention; query [s, b, heads, d]; gives [s, b, heads * the value's d]. Where all three
// are views of one block, backward's gradients lie in one block as well.
Tensor te_fused_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                          bool causal);

}  // namespace headroom::op
