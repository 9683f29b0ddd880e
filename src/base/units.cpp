#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>

namespace headroom {

std::string format_bytes(Bytes bytes) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes.count);
  size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  const int decimals = unit == 0 ? 0 : (std::abs(value) < 100.0 ? 2 : 1);
  std::array<char, 32> text{};  // not by printf, which follows the program's locale
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::fixed, decimals);
  return std::string(text.data(), end.ptr) + ' ' + kNames[unit];
}

}  // namespace headroom
