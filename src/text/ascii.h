// Letters and blanks of ASCII, whatever the locale says; bytes beyond it stay as they are.
//
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace headroom::text {

[[nodiscard]] std::string lower(std::string_view text);
[[nodiscard]] std::string upper(std::string_view text);
// Without the blanks at both ends; tabs and line ends are none.
[[nodiscard]] std::string_view trim(std::string_view text);

}  // namespace headroom::text
