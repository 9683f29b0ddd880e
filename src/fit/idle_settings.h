// Settings that were given and change nothing, because others make them idle.
//
// A flag that is accepted and does nothing looks like a flag that was followed, so the answer says
// which ones were not.
#pragma once

#include <string>
#include <vector>

#include "fit/question.h"

namespace headroom::fit {

// A sentence for each flag that was given in vain.
[[nodiscard]] std::vector<std::string> idle_settings(const FitQuestion& question);

}  // namespace headroom::fit
