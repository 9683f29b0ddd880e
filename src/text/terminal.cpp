#include "text/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace headroom::text {
namespace {

constexpr int kMinColumns = 20;
constexpr int kMaxColumns = 1000;
constexpr int kUsualColumns = 80;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

bool is_set(const std::optional<std::string>& value) { return value && !value->empty(); }

bool decide_colour(const TerminalFacts& facts, ColourChoice choice) {
  if (choice != ColourChoice::automatic) return choice == ColourChoice::always;
  if (is_set(facts.no_color)) return false;
  if (is_set(facts.force_color) && *facts.force_color != "0") return true;
  return facts.is_terminal && facts.term && *facts.term != "dumb";
}

int decide_columns(const TerminalFacts& facts) {
  if (!facts.is_terminal) return 0;
  int columns = facts.window_columns;
  if (is_set(facts.columns)) {
    int asked = 0;
    const char* end = facts.columns->data() + facts.columns->size();
    const auto [stop, status] = std::from_chars(facts.columns->data(), end, asked);
    if (status == std::errc() && stop == end && asked > 0) columns = asked;
  }
  if (columns <= 0) columns = kUsualColumns;
  return std::min(std::max(columns, kMinColumns), kMaxColumns);
}

const char* escape_of(Style style) {
  switch (style) {
    case Style::plain:
      return "";
    case Style::bold:
      return "\x1B[1m";
    case Style::dim:
      return "\x1B[2m";
    case Style::good:
      return "\x1B[32m";
    case Style::warning:
      return "\x1B[33m";
    case Style::bad:
      return "\x1B[31m";
    case Style::accent:
      return "\x1B[36m";
  }
  return "";
}

}  // namespace

Terminal decide_terminal(const TerminalFacts& facts, ColourChoice choice) {
  Terminal terminal;
  terminal.is_terminal = facts.is_terminal;
  terminal.colour = decide_colour(facts, choice);
  terminal.animation = facts.is_terminal && facts.term && *facts.term != "dumb";
  terminal.columns = decide_columns(facts);
  return terminal;
}

Terminal probe_terminal(int fd, ColourChoice choice) {
  TerminalFacts facts;
  facts.is_terminal = ::isatty(fd) == 1;
  winsize window{};
  if (facts.is_terminal && ::ioctl(fd, TIOCGWINSZ, &window) == 0) {
    facts.window_columns = window.ws_col;
  }
  facts.term = variable("TERM");
  facts.no_color = variable("NO_COLOR");
  facts.force_color = variable("FORCE_COLOR");
  facts.columns = variable("COLUMNS");
  return decide_terminal(facts, choice);
}

std::string paint(std::string_view text, Style style, bool colour) {
  if (!colour || style == Style::plain || text.empty()) return std::string(text);
  return escape_of(style) + std::string(text) + "\x1B[0m";
}

}  // namespace headroom::text
