// Where a configuration keeps the keys of its language model.
//
// Pure; thread-safe.
#pragma once

#include <string_view>

#include "text/json.h"

namespace headroom::model {

// What transformers calls it in models of text and images.
inline constexpr std::string_view kLanguagePartKey = "text_config";

// That part of a configuration of text and images, or the configuration itself where it has none.
[[nodiscard]] Result<text::JsonView> language_part(const text::JsonView& config);

}  // namespace headroom::model
