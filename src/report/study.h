// A study as text, JSON and one page.
#pragma once

#include <string>
#include <vector>

#include "report/page/html.h"
#include "study/study.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string study_text(const study::StudyAnswer& answer,
                                     const text::Terminal& terminal);
// headroom.study/1: each part under the name of its verb, as that verb prints it; null where
// missing.
[[nodiscard]] text::Json study_json(const study::StudyAnswer& answer);
[[nodiscard]] std::vector<Section> study_sections(const study::StudyAnswer& answer);

}  // namespace headroom::report
