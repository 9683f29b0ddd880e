// Open load in an answer of `headroom batch`: its sentence, table, JSON and section of the page.
#pragma once

#include <string>

#include "batch/answer.h"
#include "report/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// REQUIRES of all: answer.open_load.

// The answer in a line, without whose it is.
[[nodiscard]] std::string open_load_sentence(const batch::BatchAnswer& answer);
[[nodiscard]] std::string open_load_text(const batch::BatchAnswer& answer,
                                         const text::Terminal& terminal);
[[nodiscard]] text::Json open_load_json(const batch::BatchAnswer& answer);
[[nodiscard]] Section open_load_section(const batch::BatchAnswer& answer);

// Whether the question was answered as one would like: each rate that was asked about keeps the
// targets, or where none was, some rate does.
[[nodiscard]] bool keeps_targets(const batch::BatchAnswer& answer);

}  // namespace headroom::report
