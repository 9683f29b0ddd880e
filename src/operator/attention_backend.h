// Which kernel scaled_dot_product_attention takes: PyTorch asks each in an order whether it can, by
// the device, the type, the shapes and the mask. Our own table of its answers; pure, any thread.
//
// Source: ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.h (2.2 to 2.13). Not here:
// that builds with cuDNN above 9.15 ask cuDNN first on compute capability 9.0 and 10.x, since the
// version of a build does not tell its cuDNN; what its kernel makes and keeps is as flash's.
#pragma once

#include <cstdint>
#include <string_view>

#include "operator/dtype.h"

namespace headroom::op {

struct Environment;

enum class AttentionBackend : uint8_t { math, efficient, flash, cudnn };
// "math", "efficient", ...
[[nodiscard]] std::string_view name_of(AttentionBackend backend);

// One call, as far as the choice looks at it.
struct AttentionCall {
  DType dtype = DType::bf16;
  int64_t query_length = 0;
  int64_t key_length = 0;
  int64_t head = 0;  // of query and key
  int64_t value_head = 0;
  bool has_mask = false;
  bool causal = false;
  bool grouped = false;     // enable_gqa, and fewer heads of key and value
  bool broadcasts = false;  // fewer heads of key and value without enable_gqa
  bool trains = false;      // some input requires a gradient
  double dropout = 0;
};

// Why this kernel cannot take the call; null where it can.
[[nodiscard]] const char* refusal(AttentionBackend backend, const Environment& environment,
                                  const AttentionCall& call);
// The first of flash, efficient and math that can.
[[nodiscard]] AttentionBackend chosen_backend(const Environment& environment,
                                              const AttentionCall& call);

}  // namespace headroom::op
