// A step that was predicted, not measured, as text for a terminal and as JSON
// (`headroom.ops_predicted/1`). Pure, thread-safe.
#pragma once

#include <string>

#include "ops/predicted.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string ops_predicted_text(const ops::PredictedRun& run,
                                             const text::Terminal& terminal);
[[nodiscard]] text::Json ops_predicted_json(const ops::PredictedRun& run);

// What its text and its page share: the first line, and what it is about (several lines).
[[nodiscard]] std::string predicted_words(const ops::PredictedRun& run);
[[nodiscard]] std::string predicted_setting_words(const ops::PredictedRun& run);

}  // namespace headroom::report
