#include "report/page/columns.h"

#include <string_view>

namespace headroom::report {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k > bytes.size() - i ? '=' : kDigits[group >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

}  // namespace

std::string column_of(std::span<const int64_t> values) {
  std::string bytes;
  bytes.reserve(values.size() * 2);
  uint64_t last = 0;
  for (const int64_t value : values) {
    // In unsigned arithmetic, where a difference of any two values fits.
    const uint64_t difference = static_cast<uint64_t>(value) - last;
    last = static_cast<uint64_t>(value);
    const bool is_negative = static_cast<int64_t>(difference) < 0;
    uint64_t rest = difference << 1 ^ (is_negative ? ~uint64_t{0} : 0);
    for (; rest >= 128; rest >>= 7) bytes += static_cast<char>((rest & 127) | 128);
    bytes += static_cast<char>(rest);
  }
  return base64(bytes);
}

}  // namespace headroom::report
