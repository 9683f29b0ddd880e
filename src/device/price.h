// What an hour of a device costs: rented, and bought with its share of the machine.
//
//   rented  price of an hour
//   bought  price / (years x 8766 hours) + watts / 1000 x price of a kWh
//
// `busy` is the share of its hours in which it does what is asked about. Nothing here knows a
// price: what is given is used, in whatever currency it is. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::device {

struct PriceQuestion {
  std::optional<double> cloud_per_hour;
  std::optional<double> owned_price;
  double years = 4;
  std::optional<double> watts;
  std::optional<double> per_kwh;
  double busy = 1;
  [[nodiscard]] bool is_asked() const { return cloud_per_hour || owned_price; }
};

// "cloud=2.49,owned=30000,years=4,watts=1000,kwh=0.15,busy=0.6": one of the first two at least.
// "2.49/gpu-hour" is cloud=2.49.
Result<PriceQuestion> parse_price(std::string_view words);

// A machine with a price.
struct PricedMachine {
  std::string name;     // "cloud", "owned"
  double per_hour = 0;  // of one device
  std::string made_of;  // for people: "30000 over 4 years, 1000 W at 0.15 a kWh"
};
[[nodiscard]] std::vector<PricedMachine> machines_of(const PriceQuestion& question);

}  // namespace headroom::device
