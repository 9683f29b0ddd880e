// A pack answer as the sections of a page: the answer, the address map, what is lost and who holds
// it, the settings, and what was assumed.
//
// Pure; thread-safe; linear in the answer.
#pragma once

#include <vector>

#include "pack/answer.h"
#include "report/page/html.h"

namespace headroom::report {

[[nodiscard]] std::vector<Section> pack_sections(const pack::PackAnswer& answer);

}  // namespace headroom::report
