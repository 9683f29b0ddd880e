// Several recordings, and two held against each other: as text, JSON (schemas
// "headroom.pack.ranks/1" and "headroom.pack.comparison/1") and sections of a page.
//
// Pure, thread-safe.
#pragma once

#include <string>
#include <vector>

#include "pack/comparison.h"
#include "pack/ranks.h"
#include "report/page/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string ranks_text(const pack::RanksAnswer& answer,
                                     const text::Terminal& terminal);
[[nodiscard]] text::Json ranks_json(const pack::RanksAnswer& answer);
// The table, then the page of the worst.
[[nodiscard]] std::vector<Section> ranks_sections(const pack::RanksAnswer& answer);

[[nodiscard]] std::string comparison_text(const pack::Comparison& comparison,
                                          const text::Terminal& terminal);
[[nodiscard]] text::Json comparison_json(const pack::Comparison& comparison);
// The table, then the page of the later recording.
[[nodiscard]] std::vector<Section> comparison_sections(const pack::Comparison& comparison);

}  // namespace headroom::report
