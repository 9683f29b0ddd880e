// Two recordings held against each other, as the cards of a page: whether the second is slower,
// where a step goes in both, what changed and why.
//
// Pure, thread-safe; linear in what is shown.
#pragma once

#include <vector>

#include "ops/comparison.h"
#include "report/page/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> ops_comparison_sections(const ops::OpsComparison& comparison);

}  // namespace headroom::report
