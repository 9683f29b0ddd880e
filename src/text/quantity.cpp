#include "text/quantity.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "text/ascii.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

struct Unit {
  std::string_view name;  // in lower case
  double factor;
};

constexpr std::array<Unit, 9> kByteUnits{{
    {"b", 1},
    {"kb", 1e3},
    {"mb", 1e6},
    {"gb", 1e9},
    {"tb", 1e12},
    {"kib", 1024.0},
    {"mib", 1048576.0},
    {"gib", 1073741824.0},
    {"tib", 1099511627776.0},
}};

constexpr std::array<Unit, 12> kFlopUnits{{
    {"gflops", 1e9},
    {"tflops", 1e12},
    {"pflops", 1e15},
    {"gflop/s", 1e9},
    {"tflop/s", 1e12},
    {"pflop/s", 1e15},
    {"gops", 1e9},
    {"tops", 1e12},
    {"pops", 1e15},
    {"gop/s", 1e9},
    {"top/s", 1e12},
    {"pop/s", 1e15},
}};

Error refuse(std::string_view name, std::string_view text, const char* expected) {
  return Error{ErrorCode::usage,
               std::string(name) + ": expected " + expected + ", found '" +
                   elide(printable(text.substr(0, 200)), 40) + "'",
               {},
               {}};
}

// The number in the unit's base, or nothing where `text` is not a number and one of `units`.
std::optional<double> parse_scaled(std::string_view text, std::span<const Unit> units) {
  const std::string_view trimmed = trim(text);
  double number = 0;
  const char* end = trimmed.data() + trimmed.size();
  const auto [stop, status] = std::from_chars(trimmed.data(), end, number);
  if (status != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  const std::string unit = lower(trim({stop, static_cast<size_t>(end - stop)}));
  for (const Unit& known : units) {
    if (known.name == unit) return number * known.factor;
  }
  return std::nullopt;
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text, std::string_view name) {
  static constexpr const char* kExpected = "an amount of memory such as 80GiB or 85GB";
  const std::optional<double> value = parse_scaled(text, kByteUnits);
  if (!value || *value > 9e18) return refuse(name, text, kExpected);
  return Bytes(std::llround(*value));
}

Result<BytesPerSecond> parse_bytes_per_second(std::string_view text, std::string_view name) {
  static constexpr const char* kExpected = "a bandwidth such as 8TB/s or 900GB/s";
  const std::string_view trimmed = trim(text);
  if (!trimmed.ends_with("/s") && !trimmed.ends_with("/S")) return refuse(name, text, kExpected);
  const std::optional<double> value =
      parse_scaled(trimmed.substr(0, trimmed.size() - 2), kByteUnits);
  if (!value || *value > 1e18) return refuse(name, text, kExpected);
  return BytesPerSecond{*value};
}

Result<FlopsPerSecond> parse_flops_per_second(std::string_view text, std::string_view name) {
  const std::optional<double> value = parse_scaled(text, kFlopUnits);
  if (!value || *value > 1e21) return refuse(name, text, "a rate such as 989TFLOPS");
  return FlopsPerSecond{*value};
}

Result<Watts> parse_watts(std::string_view text, std::string_view name) {
  static constexpr std::array<Unit, 2> kUnits{{{"w", 1}, {"kw", 1000}}};
  const std::optional<double> value = parse_scaled(text, kUnits);
  if (!value || *value > 1e9) return refuse(name, text, "a power such as 500W");
  return Watts{*value};
}

}  // namespace headroom::text
