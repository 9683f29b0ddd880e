// What of a question is refused, as errors that name the flag.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace headroom::fit {

inline Error unsupported(const char* flag, const std::string& what, std::string hint = {}) {
  return {ErrorCode::usage, what + " cannot be modelled yet", std::string("--") + flag,
          std::move(hint)};
}

// Settings that no program can have together.
inline Error contradiction(const char* flag, std::string what, std::string hint) {
  return {ErrorCode::usage, std::move(what), std::string("--") + flag, std::move(hint)};
}

}  // namespace headroom::fit
