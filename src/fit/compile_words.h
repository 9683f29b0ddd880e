// Words of --compile: none, or a list of parts.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "step/compiled/compiled_parts.h"

namespace headroom::fit {

Result<void> set_compile(std::string_view words, step::CompiledParts& parts);
[[nodiscard]] std::string compile_word(const step::CompiledParts& parts);

}  // namespace headroom::fit
