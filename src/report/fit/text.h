// A fit answer for people: the answer in the first line, then short tables.
//
// Pure, thread-safe. What comes from outside cannot drive the terminal. Nothing is wider than
// terminal.columns where the terminal has a width, and figures are never cut.
#pragma once

#include <cstddef>
#include <string>

#include "fit/answer.h"
#include "text/terminal.h"

namespace headroom::report {

// As many as fit a screen; the rest are in JSON and on the page.
inline constexpr size_t kMostRemedies = 8;

[[nodiscard]] std::string fit_text(const fit::FitAnswer& answer, const text::Terminal& terminal);
[[nodiscard]] std::string against_text(const fit::AgainstAnswer& answer,
                                       const text::Terminal& terminal);

}  // namespace headroom::report
