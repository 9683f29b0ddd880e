// The answer of `bench decode` as the cards of a page: where a step's time goes by batch, the
// kernel classes under the machine's roofs, what they reach of its bandwidth, every figure. Pure;
// linear in the steps.
#pragma once

#include <vector>

#include "bench/decode.h"
#include "report/page/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> decode_sections(const bench::DecodeAnswer& answer);

}  // namespace headroom::report
