#include "batch/workload.h"

#include <gtest/gtest.h>

#include <random>

namespace headroom::batch {
namespace {

TEST(Workload, FixedLengthsByHand) {
  const Workload fixed = workload_of(100, 200, 0);
  EXPECT_DOUBLE_EQ(fixed.context_mean, 200);
  EXPECT_NEAR(fixed.context_deviation, 200 / std::sqrt(12.0), 1e-9);
  // One sequence: 200 tokens, half a block, and 1.645 deviations; many: the spread fades.
  EXPECT_NEAR(kv_tokens_needed(1, fixed), 208 + 1.645 * 57.735, 1e-2);
  EXPECT_NEAR(kv_tokens_needed(1e6, fixed) / 1e6, 208, 0.1);
}

TEST(Workload, LongAnswersAreMetMoreOften) {
  // Half the requests write 1 token, half 999: nearly all that is in flight is long.
  const Workload mixed = workload_of({{0, 1}, {0, 999}});
  EXPECT_NEAR(mixed.output_mean, 500, 1e-9);
  EXPECT_NEAR(mixed.context_mean, (0.5 + 999.0 * 999 / 2) / 1000, 1e-6);
}

TEST(Workload, SampledRequestsAgreeWithTheDistribution) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> input(1 / 160.0);
  std::exponential_distribution<double> output(1 / 340.0);
  std::vector<formats::RequestLengths> requests;
  for (int i = 0; i < 400'000; ++i) {
    requests.push_back(
        {static_cast<int64_t>(input(random)), 1 + static_cast<int64_t>(output(random))});
  }
  const Workload sampled = workload_of(requests);
  const Workload exact = workload_of(160, 340, 1);
  EXPECT_NEAR(sampled.context_mean / exact.context_mean, 1, 0.01);
  EXPECT_NEAR(sampled.context_deviation / exact.context_deviation, 1, 0.02);
}

TEST(Workload, AServerSimulatedTokenByToken) {
  // 64 slots, each refilled at once with a random request: what they hold on average.
  std::mt19937_64 random(11);
  std::exponential_distribution<double> length(1 / 100.0);
  struct Slot {
    double held = 0;
    double left = 0;
  };
  std::vector<Slot> slots(64);
  double held = 0;
  constexpr int kSteps = 20'000;
  for (int step = 0; step < kSteps; ++step) {
    for (Slot& slot : slots) {
      if (slot.left < 1) slot = {length(random), 1 + std::floor(length(random))};
      slot.held += 1;
      slot.left -= 1;
      held += slot.held / (64.0 * kSteps);
    }
  }
  EXPECT_NEAR(held / workload_of(100, 101, 1).context_mean, 1, 0.03);
}

}  // namespace
}  // namespace headroom::batch
