// The type in which a checkpoint keeps its weights, where it is quantized: "quantization_config" of
// its config.json, as transformers writes it. Engines take such a checkpoint as it is, and refuse
// to be told of another type. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "text/json.h"
#include "timing/decode_step.h"

namespace headroom::timing {

// "fp8" or "int4"; nothing where it is not quantized, or in a way that is not known here (then
// `weights` of the variant stay as they are). Errors: a config that is none.
Result<std::optional<std::string>> checkpoint_type_of(const text::JsonView& config);

// By what it is quantized, known here or not, in 40 characters at most; nothing where it is not.
Result<std::optional<std::string>> quantization_method_of(const text::JsonView& config);

// Weights of that type, and products in it where the type has them.
void set_weight_type(const std::string& type, DecodeVariant& variant);

}  // namespace headroom::timing
