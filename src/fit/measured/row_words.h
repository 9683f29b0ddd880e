// Words of a table of measurements: what is in them, and the refusal of a row.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace headroom::fit {

[[nodiscard]] inline bool has(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

inline Error unsupported(std::string reason) {
  return {ErrorCode::bad_input, std::move(reason), "", ""};
}

}  // namespace headroom::fit
