// What a million tokens cost: on a machine that is rented by the hour, and on one that was bought.
//
//   rented  price of an hour
//   bought  price / (years x 8766 hours) + watts / 1000 x price of a kWh
//   a million output tokens  = that / (throughput x 3600 x busy) x 10^6
//
// of one GPU with its share of the machine; `busy` is the share of its hours in which it has this
// load. 2.50 an hour and 5,000 tokens/s are 0.139. Nothing here knows a price: what is given is
// used, in whatever currency it is. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "batch/step_law.h"

namespace headroom::batch {

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
Result<PriceQuestion> parse_price(std::string_view words);

// A machine with a price.
struct PricedMachine {
  std::string name;     // "cloud", "owned"
  double per_hour = 0;  // of one GPU
  std::string made_of;  // for people: "30000 over 4 years, 1000 W at 0.15 a kWh"
};
[[nodiscard]] std::vector<PricedMachine> machines_of(const PriceQuestion& question);

// Of a million output tokens. REQUIRES: the throughput's ends are positive, 0 < busy <= 1.
[[nodiscard]] Interval cost_of_million(double per_hour, double busy,
                                       const Interval& tokens_per_second);

// Throughput of one GPU in one way to run it, and what it costs on each machine.
struct PriceRow {
  std::string setting;  // "B_opt 96", "batch 512", "2 replicas under MPS"
  Interval throughput_tokens_per_second;
  std::vector<Interval> cost_per_million_tokens;  // by machine
  std::optional<bool> meets_target = {};          // as expected; nothing where there is none
};

struct PriceTable {
  std::vector<PricedMachine> machines;
  double busy = 1;
  std::vector<PriceRow> rows;
};

}  // namespace headroom::batch
