// The models and families that Headroom knows, for people and for programs.
//
// Pure, thread-safe; costs a table of some hundred cells. Sizes are read from each configuration
// under whichever name its family gives them, and are left out where it gives none.
#pragma once

#include <span>
#include <string>

#include "model/builtin.h"
#include "model/families/family.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// One line a model, and the families whose configurations are understood.
[[nodiscard]] std::string models_text(std::span<const model::BuiltinModel> models,
                                      std::span<const model::Family> families,
                                      const text::Terminal& terminal);
// One model, with its whole configuration.
[[nodiscard]] std::string model_text(const model::BuiltinModel& model,
                                     std::span<const model::Family> families,
                                     const text::Terminal& terminal);
// headroom.models/1; with configurations, so that what is printed can be given back.
[[nodiscard]] text::Json models_json(std::span<const model::BuiltinModel> models,
                                     std::span<const model::Family> families);

}  // namespace headroom::report
