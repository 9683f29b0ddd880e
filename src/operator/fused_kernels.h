// Other people's fused kernels as operators: Triton kernels wrapped in custom autograd functions.
// What each keeps, what it takes inside, and where it writes over its input instead of making a
// tensor.
//
// Liger-Kernel (github.com/linkedin/Liger-Kernel, src/liger_kernel/ops) is versioned: what it takes
// changed between releases. Shapes are not checked here, as in functional.h.
#pragma once

#include <utility>

#include "operator/eager.h"

namespace headroom::op {

// The first release of Liger-Kernel that is modelled is 0.2.1.
inline constexpr Version kLigerNewest{0, 8};

// Over the last dimension. Backward writes the input's gradient over the output's.
Tensor liger_rms_norm(Eager& e, const Tensor& input, const Tensor& weight,
                      Version liger = kLigerNewest);
Tensor liger_layer_norm(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias);

// query and key are [batch, heads, sequence, head] as transposed views, and are rotated in place
// where their storage is [batch, sequence, heads, head].
std::pair<Tensor, Tensor> liger_rotary(Eager& e, const Tensor& query, const Tensor& key,
                                       const Tensor& cos, const Tensor& sin);

// activation(gate) * up, for SwiGLU and GEGLU alike: one output, and backward writes both gradients
// over what was kept.
Tensor liger_gated(Eager& e, const Tensor& gate, const Tensor& up, OpKind activation);

// The gradient is computed in forward, in the place of the logits.
Tensor liger_cross_entropy(Eager& e, const Tensor& logits, const Tensor& target,
                           Version liger = kLigerNewest);

// hidden [rows, width], weight [classes, width], target [rows]: logits are made, turned into their
// gradient and consumed chunk by chunk, in forward; backward only hands the gradients out.
Tensor liger_fused_linear_cross_entropy(Eager& e, const Tensor& hidden, const Tensor& weight,
                                        const Tensor& target, Version liger = kLigerNewest);
// Rows of one chunk: as many as keep a chunk's logits near the size of the hidden states.
[[nodiscard]] int64_t liger_chunk_rows(int64_t rows, int64_t width, int64_t classes);

Tensor liger_embedding(Eager& e, const Tensor& weight, const Tensor& indices);

}  // namespace headroom::op
