// How many positions a model was made for, as its configuration says.
//
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "text/json.h"

namespace headroom::model {

// Of the language model, where the configuration is of a model of text and images. Nothing where it
// states none.
Result<std::optional<int64_t>> positions_of(const text::JsonView& config);

// The same with what its rotary embedding is stretched by ("rope_scaling"), where the configuration
// counts positions without it: the most that an engine serves.
Result<std::optional<int64_t>> served_positions_of(const text::JsonView& config);

}  // namespace headroom::model
