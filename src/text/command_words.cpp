#include "text/command_words.h"

namespace headroom::text {

Result<std::vector<std::string>> command_words(std::string_view command) {
  std::vector<std::string> words;
  bool is_word = false;
  char quote = 0;
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    const bool is_blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (quote == 0 && is_blank) {
      is_word = false;
      continue;
    }
    if (!is_word) words.emplace_back();
    is_word = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < command.size()) {
      words.back() += command[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote == 0) return words;
  return Error{ErrorCode::usage,
               std::string("a quotation that begins with ") + quote + " does not end",
               {},
               "'...' and \"...\" keep blanks; a backslash keeps the next character"};
}

}  // namespace headroom::text
