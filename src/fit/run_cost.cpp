#include "fit/run_cost.h"

#include "base/check.h"

namespace headroom::fit {

namespace {

constexpr double kSecondsOfHour = 3600;

}  // namespace

RunCost run_cost(const device::PriceQuestion& price, const StepTime& time, int64_t devices,
                 std::optional<int64_t> epoch_tokens) {
  HEADROOM_CHECK(price.is_asked() && time.step_seconds.expected > 0, "a price and a time");
  const double tokens_of_step = time.tokens_per_second * time.step_seconds.expected;
  RunCost run;
  run.devices = devices;
  run.busy = price.busy;
  run.counts_tokens = tokens_of_step > 0;
  HEADROOM_CHECK(!epoch_tokens || run.counts_tokens, "an epoch of tokens");
  if (epoch_tokens) {
    run.epoch_tokens = epoch_tokens;
    run.epoch_seconds = static_cast<double>(*epoch_tokens) / tokens_of_step * time.step_seconds;
  }
  for (device::PricedMachine& machine : machines_of(price)) {
    const double per_second =
        machine.per_hour * static_cast<double>(devices) / (kSecondsOfHour * price.busy);
    MachineCost cost;
    if (run.counts_tokens) {
      cost.of_tokens = per_second * 1e9 / tokens_of_step * time.step_seconds;
    }
    cost.of_steps = per_second * 1e3 * time.step_seconds;
    if (run.epoch_seconds) cost.epoch = per_second * *run.epoch_seconds;
    cost.machine = std::move(machine);
    run.machines.push_back(std::move(cost));
  }
  return run;
}

}  // namespace headroom::fit
