#include "text/json_cursor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/units.h"
#include "text/json_bytes.h"

namespace headroom::text {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Behind the string whose opening quotation mark is at `at`, or npos.
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size(); at += 2) {  // an escape, and what it escapes
    at = find_quote(text.data(), at, text.size());
    if (at == text.size()) break;
    if (text[at] == '"') return at + 1;
  }
  return std::string_view::npos;
}

// Behind the object or array at `at`, or npos.
size_t balanced_end(std::string_view text, size_t at) {
  int64_t depth = 0;
  for (;;) {
    at = find_structure(text.data(), at, text.size());
    if (at == text.size()) return std::string_view::npos;
    const char c = text[at];
    if (c == '"') {
      at = string_end(text, at);
      if (at == std::string_view::npos) return at;
      continue;
    }
    ++at;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return at;
  }
}

size_t scalar_end(std::string_view text, size_t at) {
  while (at < text.size() && text[at] != ',' && text[at] != '}' && text[at] != ']' &&
         text[at] != ':' && text[at] != '"' && !is_space(text[at])) {
    ++at;
  }
  return at;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

std::optional<uint32_t> hex4(std::string_view text) {
  uint32_t code = 0;
  if (text.size() < 4) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, code, 16);
  if (error != std::errc() || end != text.data() + 4) return std::nullopt;
  return code;
}

// The character of "uXXXX" at the head of `rest`, two of them for a surrogate pair; takes them.
std::optional<uint32_t> take_code(std::string_view& rest) {
  const std::optional<uint32_t> high = hex4(rest.substr(1));
  if (!high) return std::nullopt;
  rest.remove_prefix(5);
  if (*high < 0xD800 || *high > 0xDFFF) return high;
  constexpr uint32_t kReplacement = 0xFFFD;
  if (*high > 0xDBFF || rest.size() < 6 || rest[0] != '\\' || rest[1] != 'u') return kReplacement;
  const std::optional<uint32_t> low = hex4(rest.substr(2));
  if (!low || *low < 0xDC00 || *low > 0xDFFF) return kReplacement;
  rest.remove_prefix(6);
  return 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
}

char plain_of(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    default:
      return c;
  }
}

}  // namespace

void JsonCursor::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

char JsonCursor::kind() {
  if (failed_) return 0;
  skip_space();
  if (at_ == text_.size()) return 0;
  const char c = text_[at_];
  return is_digit(c) || c == '-' ? '0' : c;
}

bool JsonCursor::enter(char opening) {
  if (kind() != opening) return fail();
  ++at_;
  is_first_ = true;
  return true;
}

bool JsonCursor::next_item() {
  if (failed_) return false;
  skip_space();
  if (at_ == text_.size()) return fail();
  const char c = text_[at_];
  if (c == '}' || c == ']') {
    ++at_;
    is_first_ = false;
    return false;
  }
  if (!is_first_) {
    if (c != ',') return fail();
    ++at_;
  }
  is_first_ = false;
  return true;
}

bool JsonCursor::next_member(std::string_view& name) {
  if (!next_item()) return false;
  if (!read_string(name)) return false;
  skip_space();
  if (at_ == text_.size() || text_[at_] != ':') return fail();
  ++at_;
  return true;
}

bool JsonCursor::read_string(std::string_view& raw) {
  if (kind() != '"') return fail();
  const size_t end = string_end(text_, at_);
  if (end == std::string_view::npos) return fail();
  raw = text_.substr(at_ + 1, end - at_ - 2);
  at_ = end;
  is_first_ = false;
  return true;
}

bool JsonCursor::read_raw(std::string_view& raw) {
  const char c = kind();
  size_t end = 0;
  if (c == '"') {
    end = string_end(text_, at_);
  } else if (c == '{' || c == '[') {
    end = balanced_end(text_, at_);
  } else {
    end = scalar_end(text_, at_);
    if (end == at_) return fail();
  }
  if (failed_ || end == std::string_view::npos) return fail();
  raw = text_.substr(at_, end - at_);
  at_ = end;
  is_first_ = false;
  return true;
}

bool JsonCursor::skip() {
  std::string_view ignored;
  return read_raw(ignored);
}

std::string unescape(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  while (!raw.empty()) {
    const size_t plain = std::min(raw.find('\\'), raw.size());
    out.append(raw.substr(0, plain));
    raw.remove_prefix(plain);
    if (raw.size() < 2) break;
    raw.remove_prefix(1);
    if (raw.front() == 'u') {
      if (const std::optional<uint32_t> code = take_code(raw)) {
        append_utf8(out, *code);
        continue;
      }
    }
    out += plain_of(raw.front());
    raw.remove_prefix(1);
  }
  return out;
}

std::optional<int64_t> fixed_point(std::string_view number, int decimals) {
  const char* at = number.data();
  const char* const end = at + number.size();
  const bool is_negative = at != end && *at == '-';
  if (is_negative) ++at;
  if (at == end || !is_digit(*at)) return std::nullopt;
  int64_t value = 0;
  const auto push = [&](int digit) {
    const std::optional<int64_t> tens = checked_multiply(value, 10);
    const std::optional<int64_t> sum = tens ? checked_add(*tens, digit) : std::nullopt;
    if (sum) value = *sum;
    return sum.has_value();
  };
  while (at != end && is_digit(*at)) {
    if (!push(*at++ - '0')) return std::nullopt;
  }
  int missing = decimals;
  bool rounds_up = false;
  if (at != end && *at == '.') {
    ++at;
    if (at == end || !is_digit(*at)) return std::nullopt;
    for (; at != end && is_digit(*at); ++at) {
      if (missing > 0 && !push(*at - '0')) return std::nullopt;
      if (missing == 0) rounds_up = *at >= '5';
      --missing;
    }
  }
  if (at != end) {  // an exponent, or no number at all
    double real = 0;
    const auto [stop, error] = std::from_chars(number.data(), end, real);
    if (error != std::errc() || stop != end) return std::nullopt;
    real *= std::pow(10.0, decimals);
    if (!(std::abs(real) < 9.0e18)) return std::nullopt;
    return std::llround(real);
  }
  for (; missing > 0; --missing) {
    if (!push(0)) return std::nullopt;
  }
  if (rounds_up && value < INT64_MAX) ++value;
  return is_negative ? -value : value;
}

}  // namespace headroom::text
