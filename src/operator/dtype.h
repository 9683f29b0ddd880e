// Element types of tensors, as PyTorch names them, and PyTorch's rules for mixing them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::op {

enum class DType : uint8_t { boolean, u8, i8, i16, i32, i64, f8, f16, bf16, f32, f64, c64 };

// Bytes of one element.
[[nodiscard]] int64_t element_size(DType dtype);
// Real or complex: a type that has gradients.
[[nodiscard]] bool is_floating(DType dtype);
// float16 or bfloat16.
[[nodiscard]] constexpr bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}
// "float32", "bfloat16", "int64" ...; the names of torch.dtype without the prefix.
[[nodiscard]] std::string_view dtype_name(DType dtype);
// Takes torch's names and the usual short ones (fp32, bf16, half); nothing for any other word.
[[nodiscard]] std::optional<DType> parse_dtype(std::string_view name);

// The type two elements of these types combine to (torch.promote_types).
[[nodiscard]] DType promote(DType a, DType b);

}  // namespace headroom::op
