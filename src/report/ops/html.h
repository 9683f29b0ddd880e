// An ops answer as the cards of a page: what bounds the run, the timeline, three accountings, what
// would help, the roofline, operators.
//
// Pure, thread-safe; linear in what is shown.
#pragma once

#include <vector>

#include "ops/answer.h"
#include "ops/timeline.h"
#include "report/page/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> ops_sections(const ops::OpsAnswer& answer,
                                                const ops::Timeline& timeline);

}  // namespace headroom::report
