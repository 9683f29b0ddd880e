// What was lost at the peak of a recorded run, as text for a terminal: the moment, the segments
// that strand most with who holds them, and the call sites.
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "pack/answer.h"
#include "text/terminal.h"

namespace headroom::report {

// Nothing where the answer has no loss.
[[nodiscard]] std::string loss_text(const pack::PackAnswer& answer, const text::Terminal& terminal);

}  // namespace headroom::report
