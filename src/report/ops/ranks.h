// Several ranks of one run, as text for a terminal and as JSON (`headroom.ops_ranks/1`): who keeps
// the others waiting in the first line.
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "ops/ranks.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string ops_ranks_text(const ops::RanksAnswer& answer,
                                         const text::Terminal& terminal);
[[nodiscard]] text::Json ops_ranks_json(const ops::RanksAnswer& answer);

// The first line of both its text and its page.
[[nodiscard]] std::string ranks_words(const ops::RanksAnswer& answer);

}  // namespace headroom::report
