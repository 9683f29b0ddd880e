#include "device/power_limit.h"

#include <cmath>
#include <string>

namespace headroom::device {

namespace {

constexpr double kLeastShare = 0.2;

// By the H100 SXM and the H100 NVL.
double exponent() { return std::log(989.4 / 835.5) / std::log(700.0 / 400.0); }

std::string words_of(Watts power) { return std::to_string(std::lround(power.value)) + " W"; }

Error refuse(const std::string& what, std::string hint) {
  return Error{ErrorCode::usage, what, {}, std::move(hint)};
}

}  // namespace

Result<void> limit_power(Device& device, Watts limit) {
  if (!device.power.known()) {
    return refuse("nothing says what power " + device.name + " is made for",
                  "give its rates as they are under the limit: KEY=VALUE, as bf16=");
  }
  const Watts own = device.power.value;
  if (limit > own || limit.value < kLeastShare * own.value) {
    return refuse(
        "power=" + words_of(limit) + " is no limit that a board of " + words_of(own) + " can have",
        "from " + words_of(Watts{kLeastShare * own.value}) + " to " + words_of(own));
  }
  const double clock = std::pow(limit.value / own.value, exponent());
  for (Figure<FlopsPerSecond>& rate : device.dense_rates) {
    if (!rate.known()) continue;
    rate.value.value *= clock;
    rate.provenance = Provenance::extrapolated;
    rate.source = "held to " + words_of(limit) + " of " + words_of(own) +
                  "; the clock as between the H100 SXM (700 W) and NVL (400 W)";
  }
  device.power = {limit, Provenance::extrapolated, "given by the user"};
  return {};
}

}  // namespace headroom::device
