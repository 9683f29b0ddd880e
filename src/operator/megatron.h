// Megatron-LM's own fused operators: what each keeps for backward and what it takes inside. Tensors
// are [sequence, batch, features] on one rank of a tensor parallel group.
//
// Source: megatron/core/fusions/{fused_bias_dropout,fused_bias_gelu,fused_bias_swiglu}.py and
// tensor_parallel/{layers,cross_entropy}.py, at d98e8a64 (August 2026). What torch.compile makes of
// the first is its partitioner's choice: of a dropout it keeps the mask, a byte an element.
// Shapes are not checked here, as in functional.h.
#pragma once

#include "operator/eager.h"
#include "operator/transformer_engine.h"

namespace headroom::op {

// residual + dropout(x + bias), in one kernel; bias may be undefined.
Tensor bias_dropout_add(Eager& e, const Tensor& x, const Tensor& bias, const Tensor& residual,
                        double probability);

// gelu(x + bias), both of which are kept.
Tensor bias_gelu(Eager& e, const Tensor& x, const Tensor& bias);
// silu(gate) * up of x + bias = [gate, up]; bias may be undefined.
Tensor bias_swiglu(Eager& e, const Tensor& x, const Tensor& bias);

// The same of rows [n, 2f] without a bias, each times its weight [n], which an expert's router
// gave.
Tensor weighted_swiglu(Eager& e, const Tensor& x, const Tensor& weights);

// ColumnParallelLinear, as of the logits of this rank's part of the vocabulary; `bias` may be
// undefined. With a sequence parallel input its whole lies in `gathered`, a block that is there for
// the whole run. With one rank it is RowParallelLinear before its sum.
Tensor column_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                     const Tensor& gathered, const ParallelLinear& module);

// The parts of rows [n, f] that `ranks` ranks hold, put together; the gradient's sum is shared
// again. Into `buffer`, a block that is there for the whole run, where there is one.
Tensor sequence_gather(Eager& e, const Tensor& part, const Tensor& buffer, int64_t ranks);
// A sum over ranks of rows [n, f], of which each gets its part; the gradient is put together.
Tensor sequence_scatter(Eager& e, const Tensor& whole, int64_t ranks);

// TopKRouter over rows [n, h] and weight [experts, h]: each row's weights of its `choices` best
// experts, among those of all, [n, experts]; `drops`: experts have a capacity, and what they have
// no room for is masked. Losses that balance the load are not counted.
Tensor expert_router(Eager& e, const Tensor& rows, const Tensor& weight, int64_t choices,
                     bool drops);

// unpermute: rows [n, h] of experts added up at the tokens that they came from, [tokens, h].
// Deterministic, by index_add_, which keeps the rows; else by scatter_add_, which does not.
Tensor expert_combine(Eager& e, const Tensor& rows, const Tensor& index, int64_t tokens,
                      bool deterministic);

// Keys [s, b, heads, key_size + r] and values [s, b, heads, v] of what one product gave,
// both [s, b, heads, key_size + v], and of the keys' turned positions [s, b, 1, r]: multi-latent
// attention's fused kernel (fused_mla_yarn_rope_apply.py).
std::vector<Tensor> latent_keys(Eager& e, const Tensor& both, const Tensor& positions,
                                int64_t key_size);

// Of logits [s, b, vocabulary / ranks] and targets [s, b]: losses [s, b] in float32. The softmax
// takes the place of the logits' float32 copy, and the gradient the place of the softmax. Compiled
// (--cross-entropy-loss-fusion, the native one), the gradient is made of a copy of the softmax, in
// the logits' type: what torch.compile of PyTorch 2.13 allocates for fused_cross_entropy.py.
Tensor parallel_cross_entropy(Eager& e, const Tensor& logits, const Tensor& target, bool compiled);

}  // namespace headroom::op
