#include "timing/checkpoint_type.h"

#include "text/utf8.h"

namespace headroom::timing {

Result<std::optional<std::string>> quantization_method_of(const text::JsonView& config) {
  HEADROOM_ASSIGN(const auto quantization, config.optional_object("quantization_config"));
  if (!quantization) return std::optional<std::string>();
  HEADROOM_ASSIGN(const auto method, quantization->optional_string("quant_method"));
  return std::optional(text::printable(method.value_or("a method it does not name").substr(0, 40)));
}

Result<std::optional<std::string>> checkpoint_type_of(const text::JsonView& config) {
  HEADROOM_ASSIGN(const auto quantization, config.optional_object("quantization_config"));
  if (!quantization) return std::optional<std::string>();
  HEADROOM_ASSIGN(const auto method, quantization->optional_string("quant_method"));
  if (!method) return std::optional<std::string>();
  if (*method == "fp8" || *method == "fbgemm_fp8") return std::optional<std::string>("fp8");
  if (*method != "gptq" && *method != "awq") return std::optional<std::string>();
  HEADROOM_ASSIGN(const auto bits, quantization->optional_int("bits", 1, 64));
  return bits == 4 ? std::optional<std::string>("int4") : std::nullopt;
}

void set_weight_type(const std::string& type, DecodeVariant& variant) {
  const bool is_of_eight = type == "fp8" || type == "int8";
  variant.weight_element_bytes = is_of_eight ? 1.0 : type == "int4" ? kInt4Bytes : 0.5;
  // Weights of 8 bits and fp4 come with activations that are alike; int4 alone is unpacked.
  if (type == "fp8") variant.product_rate = device::Rate::fp8;
  if (type == "int8") variant.product_rate = device::Rate::int8;
  if (type == "fp4") variant.product_rate = device::Rate::fp4;
}

}  // namespace headroom::timing
