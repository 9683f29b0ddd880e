// What the place we write to can show: whether it is a terminal, colours, columns.
//
// The decision is a pure function of the facts, so that it can be tested; probe_terminal() collects
// the facts of a file descriptor. Any thread, but environment variables must not change meanwhile.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headroom::text {

// What the user asked for on the command line.
enum class ColourChoice { automatic, never, always };

struct TerminalFacts {
  bool is_terminal = false;
  int window_columns = 0;               // as the terminal says; 0 where it does not
  std::optional<std::string> term;      // $TERM
  std::optional<std::string> no_color;  // $NO_COLOR: any value but "" switches colours off
  std::optional<std::string>
      force_color;                     // $FORCE_COLOR: any value but "" and "0" switches them on
  std::optional<std::string> columns;  // $COLUMNS
};

struct Terminal {
  bool is_terminal = false;
  bool colour = false;
  bool animation = false;  // may a line be redrawn?
  int columns = 0;         // 0: unlimited, as in a pipe or a file
};

[[nodiscard]] Terminal decide_terminal(const TerminalFacts& facts,
                                       ColourChoice choice = ColourChoice::automatic);
[[nodiscard]] Terminal probe_terminal(int fd, ColourChoice choice = ColourChoice::automatic);

enum class Style { plain, bold, dim, good, warning, bad, accent };

// `text` in a style where `colour` is set, else unchanged.
[[nodiscard]] std::string paint(std::string_view text, Style style, bool colour);

}  // namespace headroom::text
