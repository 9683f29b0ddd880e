// How wide a model's hidden states are, as its configuration says.
//
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "text/json.h"

namespace headroom::model {

// Of the language model, where the configuration is of a model of text and images: what
// transformers calls config.hidden_size. Nothing where it states none.
Result<std::optional<int64_t>> hidden_size_of(const text::JsonView& config);

}  // namespace headroom::model
