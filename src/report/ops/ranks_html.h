// Several ranks of one run, as the cards of a page: who keeps the others waiting, where the step of
// each goes, which collectives wait.
//
// Pure, thread-safe; linear in what is shown.
#pragma once

#include <vector>

#include "ops/ranks.h"
#include "report/page/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> ops_ranks_sections(const ops::RanksAnswer& answer);

}  // namespace headroom::report
