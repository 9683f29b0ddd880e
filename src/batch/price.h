// What a million tokens cost: on a machine that is rented by the hour, and on one that was bought
// (device/price.h):
//
//   a million output tokens  = price of an hour / (throughput x 3600 x busy) x 10^6
//
// of one GPU with its share of the machine. 2.50 an hour and 5,000 tokens/s are 0.139. Pure;
// thread-safe.
#pragma once

#include <string>
#include <vector>

#include "batch/step_law.h"
#include "device/price.h"

namespace headroom::batch {

using device::machines_of;
using device::parse_price;
using device::PricedMachine;
using device::PriceQuestion;

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
