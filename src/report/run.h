// The answer of `headroom run` as text (one line a rank and device) and JSON ("headroom.run/1").
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "run/answer.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// Every line begins with "headroom: ", as it stands among the command's own output.
[[nodiscard]] std::string run_text(const run::RunAnswer& answer, const text::Terminal& terminal);
[[nodiscard]] text::Json run_json(const run::RunAnswer& answer);

}  // namespace headroom::report
