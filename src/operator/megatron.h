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

// ColumnParallelLinear without a bias: the logits of this rank's part of the vocabulary. With a
// sequence parallel input its whole lies in `gathered`, a block that is there for the whole run.
Tensor column_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& gathered,
                     const ParallelLinear& module);

// Of logits [s, b, vocabulary / ranks] and targets [s, b]: losses [s, b] in float32. The softmax
// takes the place of the logits' float32 copy, and the gradient the place of the softmax.
Tensor parallel_cross_entropy(Eager& e, const Tensor& logits, const Tensor& target);

}  // namespace headroom::op
