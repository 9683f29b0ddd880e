// Open load in an answer of `headroom batch`: its sentence, table, JSON and section of the page.
#pragma once

#include <string>
#include <vector>

#include "batch/answer.h"
#include "report/page/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// REQUIRES of those that take an answer: answer.open_load.

// The answer in a line, without whose it is.
[[nodiscard]] std::string open_load_sentence(const batch::BatchAnswer& answer);
[[nodiscard]] std::string open_load_text(const batch::BatchAnswer& answer,
                                         const text::Terminal& terminal);
[[nodiscard]] text::Json open_load_json(const batch::BatchAnswer& answer);
[[nodiscard]] Section open_load_section(const batch::BatchAnswer& answer);

// "TTFT p95": a target's name as people say it.
[[nodiscard]] std::string spoken(const serving::LatencyTarget& target);
// Requests a second, without the unit.
[[nodiscard]] std::string per_second(double rate);
// Milliseconds, without the unit.
[[nodiscard]] std::string latency_words(double seconds);
[[nodiscard]] text::Json targets_json(const std::vector<serving::LatencyTarget>& targets);

// Whether the question was answered as one would like: each rate that was asked about keeps the
// targets, or where none was, some rate does.
[[nodiscard]] bool keeps_targets(const batch::BatchAnswer& answer);

}  // namespace headroom::report
