// Quantities with a unit in their type, so that bytes never meet tokens or FLOPs by accident.
//
// Bytes are int64 and their arithmetic is checked: an overflow is a bug of ours when both sides are
// known to be small, and an Error when they come from input (checked_add, checked_multiply).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/check.h"

namespace headroom {

// a + b and a * b, or nothing where the result does not fit int64.
[[nodiscard]] inline std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}
[[nodiscard]] inline std::optional<int64_t> checked_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// An amount of memory, in bytes. May be negative where it is a difference.
struct Bytes {
  int64_t count = 0;

  constexpr Bytes() = default;
  explicit constexpr Bytes(int64_t n) : count(n) {}
  constexpr auto operator<=>(const Bytes&) const = default;

  Bytes& operator+=(Bytes other) {
    HEADROOM_CHECK(!__builtin_add_overflow(count, other.count, &count), "byte sum overflows");
    return *this;
  }
  Bytes& operator-=(Bytes other) {
    HEADROOM_CHECK(!__builtin_sub_overflow(count, other.count, &count),
                   "byte difference overflows");
    return *this;
  }
  friend Bytes operator+(Bytes a, Bytes b) { return a += b; }
  friend Bytes operator-(Bytes a, Bytes b) { return a -= b; }
  friend Bytes operator*(Bytes a, int64_t factor) {
    HEADROOM_CHECK(!__builtin_mul_overflow(a.count, factor, &a.count), "byte product overflows");
    return a;
  }
};

// Rates. Doubles, as they are measured or promised and never exact.
struct BytesPerSecond {
  double value = 0;
  constexpr auto operator<=>(const BytesPerSecond&) const = default;
};
// Operations a second; also for integer types, where makers say OPS.
struct FlopsPerSecond {
  double value = 0;
  constexpr auto operator<=>(const FlopsPerSecond&) const = default;
};
struct Watts {
  double value = 0;
  constexpr auto operator<=>(const Watts&) const = default;
};

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;
inline constexpr int64_t kGB = 1'000'000'000;

// `n` rounded up to a multiple of `step`. REQUIRES: n >= 0, step > 0, and the result fits.
[[nodiscard]] constexpr int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

// "13.49 GiB", "512 B": three or four significant figures in binary units.
[[nodiscard]] std::string format_bytes(Bytes bytes);

}  // namespace headroom
