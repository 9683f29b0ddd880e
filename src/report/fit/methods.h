// The answer of `fit --gpus N` as text, JSON (headroom.fit_methods/1) and page.
#pragma once

#include <string>
#include <vector>

#include "fit/search/methods.h"
#include "report/page/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string methods_text(const fit::MethodsAnswer& answer,
                                       const text::Terminal& terminal);
[[nodiscard]] text::Json methods_json(const fit::MethodsAnswer& answer);
[[nodiscard]] std::vector<Section> methods_sections(const fit::MethodsAnswer& answer);

}  // namespace headroom::report
