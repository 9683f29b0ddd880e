// Other people's fused kernels as operators: Triton kernels wrapped in custom autograd functions.
// What each keeps, what it takes inside, and where it writes over its input instead of making a
// tensor. Shapes are not checked here, as in functional.h.
//
// Liger-Kernel (github.com/linkedin/Liger-Kernel, src/liger_kernel/ops) is versioned: what it takes
// changed between releases. Modelled are 0.2.1 to 0.4, which are measured, and 0.8 as of 0.8.5,
// which is held against its own Python code (tests/python/test_kernels.py); what lies between is
// taken to be as 0.8. fms-acceleration's kernels: fast_kernels.h.
#pragma once

#include <optional>
#include <utility>

#include "operator/eager.h"

namespace headroom::op {

inline constexpr Version kLigerNewest{0, 8};

struct LigerNorm {
  Version liger = kLigerNewest;
  // Backward writes the input's gradient over the output's. Gemma 2 and 3, GLM 4 and OLMo 2 need
  // the latter once more, and take a new tensor.
  bool in_place = true;
};
// Over the last dimension.
Tensor liger_rms_norm(Eager& e, const Tensor& input, const Tensor& weight, LigerNorm norm = {});
Tensor liger_layer_norm(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                        Version liger = kLigerNewest);

// query and key are [batch, heads, sequence, head] as transposed views, and are rotated in place
// where their storage is [batch, sequence, heads, head].
std::pair<Tensor, Tensor> liger_rotary(Eager& e, const Tensor& query, const Tensor& key,
                                       const Tensor& cos, const Tensor& sin);

// activation(gate) * up, for SwiGLU and GEGLU alike: one output, and backward writes both gradients
// over what was kept.
Tensor liger_gated(Eager& e, const Tensor& gate, const Tensor& up);

// The gradient is computed in forward, in the place of the logits.
Tensor liger_cross_entropy(Eager& e, const Tensor& logits, const Tensor& target,
                           Version liger = kLigerNewest);

struct LigerLinearLoss {
  Version liger = kLigerNewest;
  bool float32_accumulation = false;  // accum_dtype=torch.float32: of the weight's gradient
  std::optional<DType> autocast;      // the forward pass runs under torch.autocast with this type
};
struct LigerLinearLossResult {
  Tensor loss;
  Tensor cast_weight;  // what autocast's cache holds from here on; undefined where it holds nothing
};
// hidden [rows, width], weight [classes, width], bias [classes] or undefined, target [rows]: logits
// are made, turned into their gradient and consumed chunk by chunk, in forward; backward only hands
// the gradients out. A frozen weight has no gradient and none is made.
LigerLinearLossResult liger_linear_loss(Eager& e, const Tensor& hidden, const Tensor& weight,
                                        const Tensor& bias, const Tensor& target,
                                        const LigerLinearLoss& options = {});
// Rows of one chunk: as many as keep a chunk's logits near the size of the hidden states.
[[nodiscard]] int64_t liger_chunk_rows(int64_t rows, int64_t width, int64_t classes);

Tensor liger_embedding(Eager& e, const Tensor& weight, const Tensor& indices);

}  // namespace headroom::op
