// A fit answer as sections of a page: fit alone is a page of them, study puts them first in its
// own.
//
// Pure, thread-safe. Everything from outside is escaped by Html. The size is bounded by the
// remedies and by kStepChartPoints, whatever the length of the timeline.
#pragma once

#include <vector>

#include "fit/answer.h"
#include "report/page/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> fit_sections(const fit::FitAnswer& answer);
[[nodiscard]] std::vector<Section> against_sections(const fit::AgainstAnswer& answer);

}  // namespace headroom::report
