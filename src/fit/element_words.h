// Counts of elements in DeepSpeed's configuration, as flags take them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace headroom::fit {

Result<void> set_elements(std::string_view name, std::string_view words, int64_t least,
                          int64_t& field);
// The same, or "auto": kOfHiddenSize.
Result<void> set_elements_or_auto(std::string_view name, std::string_view words, int64_t least,
                                  int64_t& field);

}  // namespace headroom::fit
