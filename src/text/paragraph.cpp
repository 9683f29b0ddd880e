#include "text/paragraph.h"

#include <algorithm>

#include "text/utf8.h"

namespace headroom::text {

std::string paragraph(std::string_view words, int indent, int columns) {
  std::string lines;
  int at = indent;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    const std::string_view word = words.substr(begin, end - begin);
    const int width = display_width(word);
    if (at > indent && at + 1 + width > columns) {
      lines += "\n" + std::string(static_cast<size_t>(indent), ' ');
      at = indent;
    }
    if (at > indent) {
      lines += ' ';
      ++at;
    }
    lines += word;
    at += width;
    begin = end + 1;
  }
  return lines;
}

std::string wrapped(std::string_view words, const Terminal& terminal, int indent, Style style) {
  const std::string safe = printable(words);
  return paint(terminal.columns > 0 ? paragraph(safe, indent, terminal.columns) : safe, style,
               terminal.colour) +
         "\n";
}

std::string wrapped_marked(std::string_view words, std::string_view mark, Style style,
                           const Terminal& terminal, int indent) {
  std::string lines = wrapped(words, terminal, indent);
  const size_t at = lines.rfind(mark);
  if (at == std::string::npos) return lines;
  return lines.replace(at, mark.size(), paint(mark, style, terminal.colour));
}

}  // namespace headroom::text
