#include "text/utf8.h"

#include <algorithm>
#include <array>

namespace headroom::text {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Marks that add to the character before them, and invisible formatting characters.
constexpr std::array<Range, 22> kZeroWidth{{
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A}, {0x064B, 0x065F},
    {0x06D6, 0x06DC}, {0x0900, 0x0902}, {0x093C, 0x093C}, {0x0941, 0x0948}, {0x094D, 0x094D},
    {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},
    {0x200B, 0x200F}, {0x202A, 0x202E}, {0x2060, 0x2064}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F},
    {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF},
}};

// East Asian Wide and Fullwidth, and the emoji that terminals draw over two columns.
constexpr std::array<Range, 17> kTwoColumns{{
    {0x1100, 0x115F},
    {0x231A, 0x231B},
    {0x23E9, 0x23EC},
    {0x25FD, 0x25FE},
    {0x2614, 0x2615},
    {0x2705, 0x2705},
    {0x274C, 0x274C},
    {0x2E80, 0x303E},
    {0x3041, 0xA4CF},
    {0xA960, 0xA97C},
    {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},
    {0xFE30, 0xFE6F},
    {0xFF00, 0xFF60},
    {0xFFE0, 0xFFE6},
    {0x1F300, 0x1FAFF},
    {0x20000, 0x3FFFD},
}};

template <size_t N>
bool contains(const std::array<Range, N>& ranges, uint32_t code) {
  const auto* after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                       [](uint32_t c, const Range& r) { return c < r.first; });
  return after != ranges.begin() && code <= (after - 1)->last;
}

bool is_control(uint32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

// Characters that reorder or hide what follows, with which a name can pose as another.
bool is_bidi_control(uint32_t code) {
  return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

int width_of(const DecodedCharacter& character) {
  if (!character.valid) return 1;
  if (is_control(character.code) || contains(kZeroWidth, character.code)) return 0;
  return contains(kTwoColumns, character.code) ? 2 : 1;
}

}  // namespace

DecodedCharacter decode_utf8(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {lead, 1, false};
  uint32_t code = lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {lead, 1, false};
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (overlong || surrogate || code > 0x10FFFF) return {lead, 1, false};
  return {code, length, true};
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const DecodedCharacter next = decode_utf8(text);
    width += width_of(next);
    text.remove_prefix(next.length);
  }
  return width;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const DecodedCharacter next = decode_utf8(text);
    if (!next.valid || is_control(next.code) || is_bidi_control(next.code)) {
      out += "\xEF\xBF\xBD";
    } else {
      out += text.substr(0, next.length);
    }
    text.remove_prefix(next.length);
  }
  return out;
}

std::string elide_front(std::string_view text, int columns) {
  int width = display_width(text);
  if (width <= columns) return std::string(text);
  if (columns <= 0) return {};
  while (!text.empty() && width > columns - 1) {
    const DecodedCharacter next = decode_utf8(text);
    width -= width_of(next);
    text.remove_prefix(next.length);
  }
  return "…" + std::string(text);
}

std::string elide_middle(std::string_view text, int columns) {
  if (display_width(text) <= columns) return std::string(text);
  if (columns <= 0) return {};
  const int end = (columns - 1) / 2;
  constexpr std::string_view kCut = "…";
  return elide(text, columns - end) + elide_front(text, end + 1).substr(kCut.size());
}

std::string elide(std::string_view text, int columns) {
  if (display_width(text) <= columns) return std::string(text);
  if (columns <= 0) return {};
  int width = 0;
  size_t used = 0;
  while (used < text.size()) {
    const DecodedCharacter next = decode_utf8(text.substr(used));
    if (width + width_of(next) > columns - 1) break;
    width += width_of(next);
    used += next.length;
  }
  return std::string(text.substr(0, used)) + "…";
}

}  // namespace headroom::text
