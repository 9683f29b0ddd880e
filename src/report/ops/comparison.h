// Two recordings held against each other, as text for a terminal and as JSON
// (`headroom.ops_comparison/1`): whether the second is slower in the first line, then what got
// slower and why, the largest change first.
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "ops/comparison.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string ops_comparison_text(const ops::OpsComparison& comparison,
                                              const text::Terminal& terminal);
[[nodiscard]] text::Json ops_comparison_json(const ops::OpsComparison& comparison);

// What its text and its page share: the first line, how sure that is, why one row changed.
inline constexpr int kLongestName = 44;  // of an operator or a kernel; its beginning tells it apart
[[nodiscard]] std::string comparison_words(const ops::OpsComparison& comparison);
[[nodiscard]] std::string spread_words(const ops::OpsComparison& comparison);
[[nodiscard]] std::string change_reason_words(const ops::OperatorChange& change);

}  // namespace headroom::report
