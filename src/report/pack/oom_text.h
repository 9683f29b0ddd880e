// The explanation of out-of-memory messages as text for a terminal: the culprit in the first line,
// then who holds the device, then what to do.
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "pack/oom.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string oom_text(const pack::OomAnswer& answer, const text::Terminal& terminal);

}  // namespace headroom::report
