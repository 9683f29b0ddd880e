#include "formats/request_times.h"

#include <algorithm>
#include <array>

#include "text/parse_number.h"

namespace headroom::formats {
namespace {

constexpr double kMostSeconds = 253402300800.0;  // the year 10000

// Days from 1970-01-01 to a day of the Gregorian calendar: the years are counted from March, so
// that a leap day is the last of its year.
int64_t days_since_1970(int64_t year, int64_t month, int64_t day) {
  const int64_t shifted = month > 2 ? year : year - 1;
  const int64_t since_march = (month + 9) % 12;
  const int64_t leaps = shifted / 4 - shifted / 100 + shifted / 400;
  constexpr int64_t kFrom0To1970 = 719'468;
  return shifted * 365 + leaps + (since_march * 153 + 2) / 5 + day - 1 - kFrom0To1970;
}

// Takes `digits` digits off the front.
std::optional<int64_t> take_digits(std::string_view& words, size_t digits) {
  if (words.size() < digits) return std::nullopt;
  const auto value = text::parse_number<int64_t>(words.substr(0, digits));
  if (!value || *value < 0 || words.front() == '-') return std::nullopt;
  words.remove_prefix(digits);
  return value;
}

bool take(std::string_view& words, std::string_view any_of) {
  if (words.empty() || any_of.find(words.front()) == std::string_view::npos) return false;
  words.remove_prefix(1);
  return true;
}

// The numbers of "YYYY-MM-DD HH:MM:SS", taken off the front.
std::optional<std::array<int64_t, 6>> take_date(std::string_view& words) {
  constexpr std::array<size_t, 6> kDigits = {4, 2, 2, 2, 2, 2};
  constexpr std::array<std::string_view, 6> kBehind = {"-", "-", " T", ":", ":", ""};
  std::array<int64_t, 6> date{};
  for (size_t i = 0; i < date.size(); ++i) {
    const auto number = take_digits(words, kDigits[i]);
    if (!number) return std::nullopt;
    date[i] = *number;
    if (!kBehind[i].empty() && !take(words, kBehind[i])) return std::nullopt;
  }
  const auto& [year, month, day, hour, minute, second] = date;
  const bool is_date = month >= 1 && month <= 12 && day >= 1 && day <= 31;
  if (!is_date || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  return date;
}

// "", "Z", "+01:00": seconds east of Greenwich.
std::optional<double> zone_of(std::string_view words) {
  if (words.empty() || words == "Z") return 0.0;
  const bool is_west = words.front() == '-';
  if (!take(words, "+-")) return std::nullopt;
  const auto hours = take_digits(words, 2);
  take(words, ":");
  const auto minutes = words.empty() ? std::optional<int64_t>(0) : take_digits(words, 2);
  if (!hours || !minutes || !words.empty()) return std::nullopt;
  const double east = static_cast<double>(*hours * 3600 + *minutes * 60);
  return is_west ? -east : east;
}

}  // namespace

std::optional<double> seconds_of_timestamp(std::string_view words) {
  if (const auto number = text::parse_number<double>(words)) {
    return *number >= 0 && *number <= kMostSeconds ? number : std::nullopt;
  }
  const auto date = take_date(words);
  if (!date) return std::nullopt;
  double fraction = 0;
  if (take(words, ".,")) {
    const size_t digits = std::min(words.find_first_not_of("0123456789"), words.size());
    const auto value = text::parse_number<double>("0." + std::string(words.substr(0, digits)));
    if (digits == 0 || !value) return std::nullopt;
    fraction = *value;
    words.remove_prefix(digits);
  }
  const auto zone = zone_of(words);
  if (!zone) return std::nullopt;
  const auto& [year, month, day, hour, minute, second] = *date;
  const int64_t whole =
      days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
  return static_cast<double>(whole) - *zone + fraction;
}

std::optional<int64_t> tokens_of_a_hash(const std::vector<int64_t>& input_tokens,
                                        const std::vector<size_t>& first_hash) {
  constexpr int64_t kMostTokens = 4096;
  for (int64_t tokens = 16; tokens <= kMostTokens; tokens *= 2) {
    bool fits = true;
    for (size_t i = 0; i < input_tokens.size() && fits; ++i) {
      const auto hashes = static_cast<int64_t>(first_hash[i + 1] - first_hash[i]);
      fits = hashes == (input_tokens[i] + tokens - 1) / tokens;
    }
    if (fits) return tokens;
  }
  return std::nullopt;
}

}  // namespace headroom::formats
