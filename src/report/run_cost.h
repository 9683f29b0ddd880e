// What a training run costs, beside its other figures; and what an hour costs, as `fit` and `batch`
// say it.
#pragma once

#include <span>
#include <string>

#include "device/price.h"
#include "fit/run_cost.h"
#include "report/page/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// "An hour of one GPU: cloud 2.49; owned 1.01 (30000 over 4 years, ...). Always busy"
[[nodiscard]] std::string hour_words(std::span<const device::PricedMachine> machines, double busy);

// A line a machine, and where its prices come from.
[[nodiscard]] std::string run_cost_text(const fit::RunCost& run, const text::Terminal& terminal);
[[nodiscard]] Section run_cost_section(const fit::RunCost& run);
[[nodiscard]] text::Json run_cost_json(const fit::RunCost& run);

}  // namespace headroom::report
