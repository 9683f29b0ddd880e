// Words as a number: the whole of them, or nothing.
//
// What flags take. No sign of plus, no spaces, no unit (quantity.h has those); a real number is
// finite. Pure, any thread.
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <type_traits>

namespace headroom::text {

template <typename T>
[[nodiscard]] std::optional<T> parse_number(std::string_view words) {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
  T value{};
  const char* const last = words.data() + words.size();
  const auto [end, error] = std::from_chars(words.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

}  // namespace headroom::text
