#include "cli/console.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "text/utf8.h"

namespace headroom::cli {
namespace {

void to_stderr(const std::string& line) { std::fwrite(line.data(), 1, line.size(), stderr); }

}  // namespace

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return 2;
    case ErrorCode::bad_input:
      return 3;
    case ErrorCode::unavailable:
      return 4;
    case ErrorCode::partial:
      return 5;
  }
  return kExitBug;
}

Result<void> Console::answer(std::string_view words) const {
  const size_t written = std::fwrite(words.data(), 1, words.size(), stdout);
  if (written == words.size() && std::fflush(stdout) == 0) return {};
  return Error{ErrorCode::unavailable, std::string("cannot write the answer: ") + strerror(errno),
               "standard output", ""};
}

void Console::note(std::string_view words) const {
  if (!quiet) to_stderr("headroom: " + text::printable(words) + "\n");
}

void Console::complain(const Error& error) const {
  std::string line = error.where.empty() ? "" : error.where + ": ";
  line = "headroom: " + text::printable(line + error.message) + "\n";
  const std::string head = text::paint("error", text::Style::bad, err.colour);
  to_stderr("headroom: " + head + line.substr(std::strlen("headroom")));
  for (std::string_view hint = error.hint; !hint.empty();) {
    const size_t end = std::min(hint.find('\n'), hint.size());
    to_stderr("  " + text::printable(hint.substr(0, end)) + "\n");
    hint.remove_prefix(std::min(end + 1, hint.size()));
  }
}

}  // namespace headroom::cli
