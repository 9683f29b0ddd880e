// An answer of `headroom batch` as sections of a page.
#pragma once

#include <vector>

#include "batch/answer.h"
#include "report/page/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> batch_sections(const batch::BatchAnswer& answer);

}  // namespace headroom::report
