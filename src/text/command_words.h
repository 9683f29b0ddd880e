// A command as one word of a command line ("notify --to 'the team'") into its arguments.
//
// As a shell splits them, and nothing else of a shell: blanks separate, '...' and "..." keep
// blanks, a backslash keeps the next character (not inside '...'). No variables, no patterns, no
// pipes. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::text {

// An Error where a quotation does not end. No words give no arguments.
Result<std::vector<std::string>> command_words(std::string_view command);

}  // namespace headroom::text
