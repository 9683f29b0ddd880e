// A pack answer as text for a terminal: the answer in the first line, then the allocators, the
// least reserved first, then what was assumed.
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "pack/answer.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string pack_text(const pack::PackAnswer& answer, const text::Terminal& terminal);

}  // namespace headroom::report
