// A number as words.
#pragma once

#include <string>

namespace headroom::text {

// By printf's rules. REQUIRES: `form` takes one double and makes fewer than 64 characters.
[[nodiscard]] std::string formatted(const char* form, double value);

}  // namespace headroom::text
