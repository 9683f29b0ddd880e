// `bench merge`: the shares of several machines side by side, as text, JSON and a page. Pure.
#pragma once

#include <string>
#include <vector>

#include "bench/nongemm.h"
#include "report/page/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string nongemm_merged_text(const bench::NongemmMerged& merged,
                                              const text::Terminal& terminal);
[[nodiscard]] text::Json nongemm_merged_json(const bench::NongemmMerged& merged);
[[nodiscard]] std::vector<Section> nongemm_merged_sections(const bench::NongemmMerged& merged);

}  // namespace headroom::report
