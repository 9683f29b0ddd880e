// The answer of `bench nongemm` as the cards of a page: the shares of each setting as bars, the
// paper's effects, what was not measured, where it comes from. Pure; linear in the rows.
#pragma once

#include <string>
#include <vector>

#include "bench/nongemm.h"
#include "report/page/html.h"

namespace headroom::report {

// A setting's bar, with words before the name of its model.
struct NongemmLane {
  std::string before;
  bench::NongemmRow row;
};
// The bars with their legend.
[[nodiscard]] Html nongemm_lanes(const std::vector<NongemmLane>& lanes);

[[nodiscard]] std::vector<Section> nongemm_sections(const bench::NongemmAnswer& answer);

}  // namespace headroom::report
