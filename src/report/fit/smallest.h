// The answer of `fit --smallest` as text, JSON (headroom.fit_smallest/1) and page.
#pragma once

#include <string>
#include <vector>

#include "fit/search/smallest.h"
#include "report/page/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string smallest_text(const fit::SmallestAnswer& answer,
                                        const text::Terminal& terminal);
[[nodiscard]] text::Json smallest_json(const fit::SmallestAnswer& answer);
[[nodiscard]] std::vector<Section> smallest_sections(const fit::SmallestAnswer& answer);

}  // namespace headroom::report
