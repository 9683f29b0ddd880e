#include "device/price.h"

#include <algorithm>
#include <array>

#include "text/number.h"
#include "text/parse_number.h"

namespace headroom::device {
namespace {

constexpr double kHoursOfYear = 8766;  // 365.25 days

Error usage(std::string words) {
  return Error{ErrorCode::usage, std::move(words), "--price",
               "2.49/gpu-hour or cloud=2.49 (an hour of one GPU), owned=30000 (one GPU with its "
               "share of the "
               "machine), with years=4, watts=1000 and kwh=0.15, busy=0.6"};
}

struct Field {
  std::string_view name;
  double most;
  void (*set)(PriceQuestion&, double);
};

constexpr std::array<Field, 6> kFields = {{
    {"cloud", 1e6, [](PriceQuestion& q, double value) { q.cloud_per_hour = value; }},
    {"owned", 1e9, [](PriceQuestion& q, double value) { q.owned_price = value; }},
    {"years", 100, [](PriceQuestion& q, double value) { q.years = value; }},
    {"watts", 1e6, [](PriceQuestion& q, double value) { q.watts = value; }},
    {"kwh", 1e6, [](PriceQuestion& q, double value) { q.per_kwh = value; }},
    {"busy", 1, [](PriceQuestion& q, double value) { q.busy = value; }},
}};

Result<void> add(std::string_view words, PriceQuestion& question,
                 std::vector<std::string_view>& seen) {
  constexpr std::string_view kHour = "/gpu-hour";
  const bool is_hour = words.ends_with(kHour);
  const size_t equals = is_hour ? 0 : std::min(words.find('='), words.size());
  const std::string_view name = is_hour ? "cloud" : words.substr(0, equals);
  const auto field = std::ranges::find(kFields, name, &Field::name);
  if (equals == words.size() || field == kFields.end()) {
    return usage("'" + std::string(words.substr(0, 80)) + "' is no part of a price");
  }
  if (std::ranges::find(seen, name) != seen.end()) return usage(std::string(name) + " twice");
  seen.push_back(name);
  const std::string_view number =
      is_hour ? words.substr(0, words.size() - kHour.size()) : words.substr(equals + 1);
  const auto value = text::parse_number<double>(number);
  if (!value || !(*value > 0) || !(*value <= field->most)) {
    return usage("'" + std::string(words.substr(0, 80)) + "' is no price: a number above 0, " +
                 text::formatted("%.10g at most", field->most));
  }
  field->set(question, *value);
  return {};
}

}  // namespace

Result<PriceQuestion> parse_price(std::string_view words) {
  PriceQuestion question;
  std::vector<std::string_view> seen;
  while (true) {
    const size_t comma = std::min(words.find(','), words.size());
    HEADROOM_TRY(add(words.substr(0, comma), question, seen));
    if (comma == words.size()) break;
    words.remove_prefix(comma + 1);
  }
  if (!question.is_asked()) return usage("of which machine?");
  if (question.watts.has_value() != question.per_kwh.has_value()) {
    return usage("electricity takes both, watts and kwh");
  }
  if (question.watts && !question.owned_price) {
    return usage("electricity is in the price of a cloud's hour");
  }
  return question;
}

std::vector<PricedMachine> machines_of(const PriceQuestion& question) {
  std::vector<PricedMachine> machines;
  if (question.cloud_per_hour) {
    machines.push_back({"cloud", *question.cloud_per_hour,
                        text::formatted("%.10g an hour", *question.cloud_per_hour)});
  }
  if (question.owned_price) {
    PricedMachine owned{"owned", *question.owned_price / (question.years * kHoursOfYear), {}};
    owned.made_of = text::formatted("%.10g ", *question.owned_price) +
                    text::formatted("over %.10g years", question.years);
    if (question.watts) {
      owned.per_hour += *question.watts / 1000 * *question.per_kwh;
      owned.made_of += text::formatted(" and %.10g W ", *question.watts) +
                       text::formatted("at %.10g a kWh", *question.per_kwh);
    } else {
      owned.made_of += ", without electricity";
    }
    machines.push_back(std::move(owned));
  }
  return machines;
}

}  // namespace headroom::device
