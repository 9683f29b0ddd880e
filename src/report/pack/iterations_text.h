// What of a recording comes again, and how well a plan made from some of it serves the rest, as the
// lines that `headroom pack` prints. Pure, thread-safe.
#pragma once

#include <string>

#include "pack/understanding.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string iterations_text(const pack::Understanding& found,
                                          const text::Terminal& terminal);

}  // namespace headroom::report
