// Transformer Engine's modules whose products are in FP8: what transformer_engine.h has, where
// module.fp8 names a recipe. What comes in and goes out is in the model's own type.
//
// Weights in FP8 are made with a step's first micro-batch and kept from step to step; they are
// whoever builds the graph's to declare (model/megatron_fp8.h), and what quantizes them, once a
// step, is not timed. Nor are counted what a tensor's largest value takes (512 bytes, for a moment)
// and what recomputation keeps of delayed scales.
//
// Invariants, of a tensor [n, k] that is quantized:
//   1. Products read it by rows, and, for the weight's gradient, by columns. Where those are two
//      blocks (keeps_fp8_twice) both are made at once, if both will be asked for.
//   2. When forward ends the columns alone are kept; rows, where ranks gather the sequence again
//      in backward and one scale is for all: those are gathered by rows, and transposed then.
//   3. A gradient is quantized both ways, beside itself, which its maker holds until the module's
//      backward ends.
//
// Source: transformer_engine/pytorch/module/{linear,layernorm_linear,grouped_linear,base}.py,
// tensor/storage/float8_tensor_storage.py, tensor/float8_blockwise_tensor.py, distributed.py
// (gather_along_first_dim), csrc/quantizer.cpp, csrc/extensions/normalization.cpp,
// versions 2.6, 2.9 and of August 2026.
#pragma once

#include "operator/transformer_engine.h"

namespace headroom::op {

Tensor te_fp8_norm_linear(Eager& e, const Tensor& input, const Tensor& norm_weight,
                          const Tensor& norm_bias, const Tensor& weight, const Tensor& bias,
                          const ParallelLinear& module);

Tensor te_fp8_column_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                            const ParallelLinear& module);

Tensor te_fp8_row_linear(Eager& e, const Tensor& input, const Tensor& weight,
                         const ParallelLinear& module);

Tensor te_fp8_grouped_linear(Eager& e, const Tensor& rows, std::span<const Tensor> weights,
                             const ParallelLinear& module);

}  // namespace headroom::op
