// Transformer Engine's FP8: by which recipe tensors are scaled, what its scales take, and what a
// GPU's products read.
//
// Source: transformer_engine/common/transformer_engine.cpp (nvte_is_non_tn_fp8_gemm_supported),
// common/gemm/cublaslt_gemm.cu (CanonicalizeGemmInput), pytorch/quantization.py
// (_compute_*_support), pytorch/utils.py (assert_dim_for_fp8_exec), csrc/quantizer.cpp
// (get_scale_shape), versions 2.9 and of August 2026.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::op {

// Whether a format has four or five bits of exponent is of no matter to memory.
enum class Fp8Recipe : uint8_t {
  none,
  delayed,     // one scale a tensor, by the largest values of steps before
  tensorwise,  // one scale a tensor, by its own largest value ("current scaling")
  blockwise,   // 128 elements of a row or of a column, of a weight 128 x 128
  mxfp8,       // 32 elements of a row or of a column
};

// Megatron-LM's word for it (--fp8-recipe).
[[nodiscard]] std::string_view name_of(Fp8Recipe recipe);
// Fp8Recipe::none where it is no such word.
[[nodiscard]] Fp8Recipe fp8_recipe_of(std::string_view name);

[[nodiscard]] constexpr bool has_one_scale(Fp8Recipe recipe) {
  return recipe == Fp8Recipe::delayed || recipe == Fp8Recipe::tensorwise;
}

// Whether a GPU of that compute capability (10 * major + minor) has such products, as they are
// modelled: blockwise ones of Blackwell's are made of mxfp8's, and are not.
[[nodiscard]] bool multiplies_fp8(Fp8Recipe recipe, int compute_capability);

// Whether what is read by rows and by columns is kept twice: scaled differently, or transposed for
// GPUs whose products read rows alone.
[[nodiscard]] bool keeps_fp8_twice(Fp8Recipe recipe, int compute_capability);

// What sizes have to be multiples of, where tokens [rows, inputs] meet a weight [outputs, inputs].
// A gradient of the tokens sums over the outputs, one of the weight over all tokens that ranks
// gather.
struct Fp8Multiples {
  int64_t inputs = 16;
  int64_t outputs = 16;
  int64_t rows = 8;
  int64_t gathered_rows = 16;
};
// `keeps_twice` as keeps_fp8_twice() says it.
[[nodiscard]] Fp8Multiples fp8_multiples(Fp8Recipe recipe, bool keeps_twice);

// Bytes of the scales of [rows, columns], as it is read by rows and by columns. One scale a tensor
// is both, and stands by rows.
struct Fp8Scales {
  int64_t by_rows = 0;
  int64_t by_columns = 0;
};
[[nodiscard]] Fp8Scales fp8_scales(Fp8Recipe recipe, int64_t rows, int64_t columns, bool is_weight);

}  // namespace headroom::op
