// Words of --checkpointing: a kind, some with a number in them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "fit/question.h"

namespace headroom::fit {

Result<void> set_checkpointing(std::string_view words, Checkpointing& field);
[[nodiscard]] std::string checkpointing_word(const Checkpointing& value);

}  // namespace headroom::fit
