#include "operator/dtype.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::op {

int64_t element_size(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
    case DType::i8:
    case DType::f8:
      return 1;
    case DType::i16:
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::f64:
    case DType::c64:
      return 8;
  }
  HEADROOM_CHECK(false, "unknown dtype");
  return 0;
}

bool is_floating(DType dtype) { return dtype >= DType::f8; }

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "bool";
    case DType::u8:
      return "uint8";
    case DType::i8:
      return "int8";
    case DType::i16:
      return "int16";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::f8:
      return "float8";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::c64:
      return "complex64";
  }
  return "unknown";
}

std::optional<DType> parse_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  struct Alias {
    std::string_view name;
    DType dtype;
  };
  static constexpr Alias kAliases[] = {
      {"bool", DType::boolean},     {"uint8", DType::u8},       {"int8", DType::i8},
      {"int16", DType::i16},        {"int32", DType::i32},      {"int64", DType::i64},
      {"long", DType::i64},         {"float8", DType::f8},      {"fp8", DType::f8},
      {"float8_e4m3fn", DType::f8}, {"float8_e5m2", DType::f8}, {"float16", DType::f16},
      {"fp16", DType::f16},         {"half", DType::f16},       {"bfloat16", DType::bf16},
      {"bf16", DType::bf16},        {"float32", DType::f32},    {"fp32", DType::f32},
      {"float", DType::f32},        {"float64", DType::f64},    {"fp64", DType::f64},
      {"double", DType::f64},
  };
  const auto* found = std::ranges::find(kAliases, name, &Alias::name);
  if (found == std::end(kAliases)) return std::nullopt;
  return found->dtype;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  // The two half types meet in float32, and an unsigned byte meets a signed one in int16; all else
  // is the larger in the order of the enumeration.
  if ((a == DType::f16 && b == DType::bf16) || (a == DType::bf16 && b == DType::f16)) {
    return DType::f32;
  }
  if ((a == DType::u8 && b == DType::i8) || (a == DType::i8 && b == DType::u8)) return DType::i16;
  return std::max(a, b);
}

}  // namespace headroom::op
