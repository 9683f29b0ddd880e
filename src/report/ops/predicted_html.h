// A step that was predicted, as the cards of a page: what it takes, what each part takes and would
// give, where the figures come from.
//
// Pure, thread-safe; linear in what is shown.
#pragma once

#include <vector>

#include "ops/predicted.h"
#include "report/page/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> ops_predicted_sections(const ops::PredictedRun& run);

}  // namespace headroom::report
