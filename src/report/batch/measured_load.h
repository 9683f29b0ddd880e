// A server under open load, as measured, in an answer of `headroom batch`; what was predicted for
// the same rates stands beside it.
#pragma once

#include <string>

#include "batch/answer.h"
#include "report/page/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// REQUIRES of all: answer.measured_load.

[[nodiscard]] std::string measured_load_sentence(const batch::BatchAnswer& answer);
[[nodiscard]] std::string measured_load_text(const batch::BatchAnswer& answer,
                                             const text::Terminal& terminal);
[[nodiscard]] text::Json measured_load_json(const batch::BatchAnswer& answer);
[[nodiscard]] Section measured_load_section(const batch::BatchAnswer& answer);

}  // namespace headroom::report
