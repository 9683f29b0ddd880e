// An ops answer as text for a terminal: what bounds the run in the first line, then the three
// accountings side by side, the operators, and how much could not be linked or sorted.
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "ops/answer.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string ops_text(const ops::OpsAnswer& answer, const text::Terminal& terminal);

}  // namespace headroom::report
