// The fused kernels of fms-acceleration (fused-ops-and-kernels, "foak"), which come from unsloth:
// norm, rotary embedding, cross entropy, and LoRA beside quantized weights in one autograd
// function. What each keeps and where it writes over what it was given. Shapes are not checked
// here.
//
// Source: github.com/foundation-model-stack/fms-acceleration,
// plugins/fused-ops-and-kernels/src/fms_acceleration_foak (0.4 to 0.7, held against 0.7.4). Its
// fused linear cross entropy is a copy of Liger-Kernel 0.3: fused_kernels.h.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "operator/functional.h"

namespace headroom::op {

// Over the last dimension. Backward writes over the output's gradient; the weight gets none.
Tensor fast_rms_norm(Eager& e, const Tensor& input, const Tensor& weight);

// x is [batch, sequence, heads, head], contiguous, and rotated in place; backward rotates the
// gradient in place, in a copy where its layout is another.
Tensor fast_rotary(Eager& e, const Tensor& x, const Tensor& cos, const Tensor& sin);

// logits [rows, classes], target [rows]: the losses of the rows, summed and divided. Backward
// writes the gradient over the logits.
Tensor fast_cross_entropy(Eager& e, const Tensor& logits, const Tensor& target);

// One of the modules that a fused function runs: a quantized weight (bnb's nf4 or GPTQ) with LoRA.
// a is [rank, in] and b [out, rank]; bias may be undefined.
struct FastLoraModule {
  QuantizedLinear base;
  Tensor a;
  Tensor b;
  Tensor bias;
};

struct FastLoraOptions {
  double dropout = 0;
  std::optional<DType> autocast;  // the type that torch.autocast casts products to
};

// x [batch, sequence, in] through one module (o_proj) or three (q_proj, k_proj, v_proj): an output
// each. With GPTQ, all the weights are unpacked before the first product.
std::vector<Tensor> fast_lora(Eager& e, const Tensor& x, std::span<const FastLoraModule> modules,
                              const FastLoraOptions& options);

// down(silu(gate(x)) * up(x)), all three with LoRA; modules are gate, up and down.
Tensor fast_lora_mlp(Eager& e, const Tensor& x, std::span<const FastLoraModule> modules,
                     const FastLoraOptions& options);

}  // namespace headroom::op
