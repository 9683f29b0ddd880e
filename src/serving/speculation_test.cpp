#include "serving/speculation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "serving/engine_simulator.h"

namespace headroom::serving {
namespace {

// Requests without prompts to speak of, all there at once.
Arrivals many(int64_t output_tokens) {
  Arrivals arrivals;
  for (int i = 0; i < 64; ++i) arrivals.requests.push_back({0, 1, output_tokens});
  return arrivals;
}

// 4 ms, and 0.1 ms for each row; prompts cost nothing.
IterationLaw law() { return IterationLaw({{1, 4.1e-3, 0}, {1000, 104e-3, 0}}, 1); }

EngineLimits limits(const Speculation& speculation) {
  return {.max_num_seqs = 64, .max_num_batched_tokens = 8192, .speculation = speculation};
}

TEST(Speculation, TheClosedForm) {
  EXPECT_DOUBLE_EQ((Speculation{.draft_tokens = 4, .acceptance = 0.7}.tokens_per_step()),
                   1 + 0.7 + 0.49 + 0.343 + 0.2401);
  EXPECT_DOUBLE_EQ((Speculation{.draft_tokens = 3, .acceptance = 1}.tokens_per_step()), 4);
  EXPECT_DOUBLE_EQ((Speculation{.draft_tokens = 3, .acceptance = 0}.tokens_per_step()), 1);
  EXPECT_DOUBLE_EQ(Speculation{}.tokens_per_step(), 1);
}

// The simulated engine against (1 - a^(k+1)) / (1 - a): 64 x 2000 tokens, so that three standard
// errors are 1.5 % at most.
TEST(Speculation, TheSimulatedEngineGivesSoManyTokensAStep) {
  for (const int64_t k : {1, 3, 8}) {
    for (const double a : {0.0, 0.3, 0.7, 0.95, 1.0}) {
      const Speculation speculation{.draft_tokens = k, .acceptance = a};
      const SimulatedRun run = simulate(many(2000), law(), limits(speculation));
      const double tokens =
          static_cast<double>(run.decoded_tokens) / static_cast<double>(run.decodes);
      EXPECT_NEAR(tokens, speculation.tokens_per_step(), 0.015 * speculation.tokens_per_step())
          << k << " " << a;
      EXPECT_EQ(run.decoded_tokens, 64 * 1999) << "the first token is the prompt's";
    }
  }
}

// With every draft accepted a request of 1 + 4 n tokens takes n steps of four rows for each of 64:
// 4 + 25.6 ms, and three drafts of a tenth of a plain step (10.4 ms).
TEST(Speculation, AStepTakesWhatItsRowsAndItsDraftsTake) {
  const Speculation speculation{.draft_tokens = 3, .acceptance = 1, .draft_share = 0.1};
  const SimulatedRun run = simulate(many(1 + 4 * 10), law(), limits(speculation));
  const double first = 4e-3 + 64 * 1e-4;
  const double step = 4e-3 + 256 * 1e-4 + 3 * 0.1 * first;
  EXPECT_NEAR(run.seconds, first + 10 * step, 1e-9);
  EXPECT_EQ(run.iterations, 11);
  EXPECT_EQ(run.requests.front().gaps, 10);
}

TEST(Speculation, NoDraftsAreNoDifference) {
  const SimulatedRun plain = simulate(many(50), law(), limits({}));
  EXPECT_EQ(plain.decodes, plain.decoded_tokens);
  // All drafts rejected: as many iterations, each with more rows.
  const SimulatedRun rejected =
      simulate(many(50), law(), limits({.draft_tokens = 2, .acceptance = 0}));
  EXPECT_EQ(rejected.iterations, plain.iterations);
  EXPECT_GT(rejected.seconds, 1.5 * plain.seconds);
}

// Drafts take room in the cache and in the budget, and give it back.
TEST(Speculation, DraftsKeepToBudgetAndCache) {
  EngineLimits tight = limits({.draft_tokens = 7, .acceptance = 0.5});
  tight.max_num_batched_tokens = 64;
  tight.kv_blocks = 60;
  const SimulatedRun run = simulate(many(40), law(), tight);
  EXPECT_LE(run.most_blocks, 60);
  EXPECT_EQ(run.blocks_at_end, 0);
  for (const RequestOutcome& request : run.requests) EXPECT_TRUE(request.is_ended);
}

}  // namespace
}  // namespace headroom::serving
