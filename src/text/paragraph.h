// Words set as a paragraph for a terminal. Pure, any thread, linear in the text.
#pragma once

#include <string>
#include <string_view>

#include "text/terminal.h"

namespace headroom::text {

// A line longer than this is hard to read however wide the terminal is.
inline constexpr int kParagraphColumns = 100;

// What fits into a terminal of so many columns (0: no terminal) and is easy to read.
[[nodiscard]] constexpr int paragraph_columns(int columns) {
  return columns > 0 && columns < kParagraphColumns ? columns : kParagraphColumns;
}

// `words` broken at spaces into lines that begin at column `indent` and end before `columns`; the
// first begins where the caller's line stands, taken to be `indent` too. A word that is longer than
// a line stands alone. No line feed at the end.
[[nodiscard]] std::string paragraph(std::string_view words, int indent,
                                    int columns = kParagraphColumns);

// One line of an answer, made printable: broken at the terminal's width, every line but the first
// at column `indent`; whole where there is no terminal, as programs read lines. With its line feed.
[[nodiscard]] std::string wrapped(std::string_view words, const Terminal& terminal, int indent = 0,
                                  Style style = Style::plain);
// The same, and of it `mark` in a style, where that is in it and no line ends within.
[[nodiscard]] std::string wrapped_marked(std::string_view words, std::string_view mark, Style style,
                                         const Terminal& terminal, int indent = 0);

}  // namespace headroom::text
