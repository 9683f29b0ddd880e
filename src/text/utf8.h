// UTF-8 for terminals and files: decoding that cannot fail, width in columns, cutting to a width.
//
// Pure functions without locale, any thread, linear in the text. The width table is the part of
// Unicode's East Asian Width (UAX #11) and combining marks that terminals agree on; characters that
// it does not know are one column wide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::text {

struct DecodedCharacter {
  uint32_t code = 0;
  size_t length = 0;  // bytes used; at least 1 unless the text is empty
  bool valid = false;
};

// The first character of `text`. A byte that begins no valid character is consumed alone.
[[nodiscard]] DecodedCharacter decode_utf8(std::string_view text);

// Columns that `text` takes in a terminal, control characters not counted.
[[nodiscard]] int display_width(std::string_view text);

// `text` without what could drive the terminal: control characters, and bytes that are not UTF-8,
// become U+FFFD. Anything that came from a file goes through here before it is shown.
[[nodiscard]] std::string printable(std::string_view text);

// `text` cut to at most `columns` columns, the last one "…" where something was cut.
[[nodiscard]] std::string elide(std::string_view text, int columns);
// The same, cut at its beginning: of a path the end tells more.
[[nodiscard]] std::string elide_front(std::string_view text, int columns);
// The same, cut in its middle: of titles that differ at their end.
[[nodiscard]] std::string elide_middle(std::string_view text, int columns);

}  // namespace headroom::text
