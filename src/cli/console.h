// Where answers and everything else go: stdout is the answer's, stderr takes the rest.
//
// One a process, made by main; verbs write through it and never exit.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/terminal.h"

namespace headroom::cli {

// The exit codes that are not an error's (docs: `headroom help`).
inline constexpr int kExitYes = 0;
inline constexpr int kExitNotPlainYes = 1;
inline constexpr int kExitBug = 70;

// 2 usage, 3 bad input, 4 not available here, 5 partial result.
[[nodiscard]] int exit_code_of(ErrorCode code);

struct Console {
  text::Terminal out;
  text::Terminal err;
  bool quiet = false;

  // Writes all of it to stdout. What cannot be written (a full disk, a closed pipe) is an Error.
  [[nodiscard]] Result<void> answer(std::string_view words) const;
  // A remark on stderr, unless quiet.
  void note(std::string_view words) const;
  // An error on stderr, also when quiet: what happened, and on a line of its own what to do.
  void complain(const Error& error) const;
};

}  // namespace headroom::cli
