#include "fit/run_cost.h"

#include <gtest/gtest.h>

namespace headroom::fit {
namespace {

// A step of 100,000 tokens in two seconds.
StepTime two_seconds() {
  StepTime time;
  time.step_seconds = {1.5, 2, 3};
  time.tokens_per_second = 50'000;
  return time;
}

TEST(RunCost, OfABillionTokensRentedAndOwned) {
  // An hour of one: 2.10 rented; 35064 over 35064 hours, and a kW at 0.15.
  const auto price = *device::parse_price("2.10/gpu-hour,owned=35064,watts=1000,kwh=0.15,busy=0.5");
  const RunCost run = run_cost(price, two_seconds(), 8, {});
  ASSERT_EQ(run.machines.size(), 2U);
  const Cost& rented = run.machines[0].of_tokens;
  EXPECT_NEAR(rented.expected, 2 * 93.3333, 1e-3);  // busy half of its hours
  EXPECT_NEAR(rented.low, 0.75 * rented.expected, 1e-9);
  EXPECT_NEAR(rented.high, 1.5 * rented.expected, 1e-9);
  EXPECT_NEAR(run.machines[1].of_tokens.expected, rented.expected * 1.15 / 2.10, 1e-9);
  EXPECT_NEAR(run.machines[0].of_steps.expected, 8 * 2.10 * 2000 / 3600 / 0.5, 1e-9);
  EXPECT_FALSE(run.machines[0].epoch);
}

TEST(RunCost, OfAnEpoch) {
  const auto price = *device::parse_price("cloud=2");
  const RunCost run = run_cost(price, two_seconds(), 1, 5'000'000'000);
  ASSERT_TRUE(run.epoch_seconds);
  EXPECT_NEAR(run.epoch_seconds->expected, 100'000, 1e-6);
  EXPECT_NEAR(run.machines[0].epoch->expected, 5 * run.machines[0].of_tokens.expected, 1e-9);
}

TEST(RunCost, WithoutTokens) {
  StepTime time = two_seconds();
  time.tokens_per_second = 0;
  const RunCost run = run_cost(*device::parse_price("cloud=3.6"), time, 2, {});
  EXPECT_FALSE(run.counts_tokens);
  EXPECT_NEAR(run.machines[0].of_steps.expected, 2 * 2.0, 1e-12);
}

}  // namespace
}  // namespace headroom::fit
