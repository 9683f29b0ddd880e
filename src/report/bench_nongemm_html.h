// The answer of `bench nongemm` as the cards of a page: the shares of each setting as bars, the
// paper's effects, what was not measured, where it comes from. Pure; linear in the rows.
#pragma once

#include <vector>

#include "bench/nongemm.h"
#include "report/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> nongemm_sections(const bench::NongemmAnswer& answer);

}  // namespace headroom::report
