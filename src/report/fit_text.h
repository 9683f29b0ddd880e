// A fit answer for people: the answer in the first line, then short tables.
//
// Pure, thread-safe. What comes from outside cannot drive the terminal. Nothing is wider than
// terminal.columns where the terminal has a width, and figures are never cut.
#pragma once

#include <string>

#include "fit/answer.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string fit_text(const fit::FitAnswer& answer, const text::Terminal& terminal);
[[nodiscard]] std::string against_text(const fit::AgainstAnswer& answer,
                                       const text::Terminal& terminal);

}  // namespace headroom::report
