// Whether a name has a part in it, as names of calls and kernels are told apart. Pure.
#pragma once

#include <string_view>

namespace headroom::ops {

[[nodiscard]] inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace headroom::ops
