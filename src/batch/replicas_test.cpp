#include "batch/replicas.h"

#include <gtest/gtest.h>

#include "batch/batch.h"

namespace headroom::batch {
namespace {

// Steps of 4 ms + 0.1 ms a sequence; half of B_opt's waits for the host.
BatchAnswer ask(std::optional<double> target_seconds, double min_efficiency = 0.1) {
  BatchQuestion question;
  for (const int64_t batch : {1, 32, 64, 96, 128, 256}) {
    const double seconds = 4e-3 + 1e-4 * static_cast<double>(batch);
    question.points.push_back({.batch = batch,
                               .throughput_tokens_per_second = static_cast<double>(batch) / seconds,
                               .itl_seconds = seconds});
  }
  question.host_gap = 0.5;
  question.min_efficiency = min_efficiency;
  if (target_seconds) question.slo = ItlTarget{.seconds = target_seconds};
  question.price.cloud_per_hour = 2;
  auto answered = answer(question, nullptr, timing::TimingModel::built_in());
  for (Replicas& replicas : answered->replicas) replicas.fits = true;
  return *std::move(answered);
}

// Two of them make 1.6 times the steps, so each takes 2 / 1.6 = 1.25 times as long.
TEST(Replicas, EachWaitsForTheOthers) {
  const BatchAnswer answer = ask(14.4e-3);
  ASSERT_EQ(answer.advice.batch, 96);
  const Replicas& two = answer.replicas.front();
  ASSERT_EQ(two.count, 2);
  EXPECT_NEAR(two.speedup_vs_single.expected, 1.6, 1e-12);
  EXPECT_NEAR(two.itl_seconds.expected, 1.25 * 13.6e-3, 1e-12);
  // By Little's law what is in flight is throughput times the time between tokens.
  EXPECT_NEAR(throughput_of(two, answer).expected * two.itl_seconds.expected, 2 * 96, 1e-9);
  EXPECT_LT(two.itl_seconds.low, two.itl_seconds.expected);
  EXPECT_GT(two.itl_seconds.high, two.itl_seconds.expected);
}

TEST(Replicas, ThoseThatMissTheTargetAreNotStarted) {
  const BatchAnswer missed = ask(14.4e-3);
  EXPECT_FALSE(*missed.replicas.front().meets_target);
  EXPECT_EQ(replicas_to_start(missed), nullptr);
  // B_opt is 32 by its efficiency; three in turns take 7.2 x 3 / 1.875 = 11.5 ms, four 14.6.
  const BatchAnswer kept = ask(14.4e-3, 0.5);
  ASSERT_EQ(kept.advice.batch, 32);
  const Replicas* best = replicas_to_start(kept);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->count, 3);
  EXPECT_NEAR(best->itl_seconds.expected, 3 * 7.2e-3 / 1.875, 1e-12);
  EXPECT_TRUE(*best->meets_target);
}

TEST(Replicas, WithoutATargetTheyAreHeldAgainstTheBestServer) {
  const BatchAnswer answer = ask(std::nullopt);
  EXPECT_FALSE(answer.replicas.front().meets_target);
  const Replicas* best = replicas_to_start(answer);
  ASSERT_NE(best, nullptr);
  double most = 0;
  for (const CurveRow& row : answer.curve) {
    most = std::max(most, row.point.throughput_tokens_per_second.expected);
  }
  EXPECT_GT(throughput_of(*best, answer).expected, most);
}

TEST(Prices, SaysWhichRowMissesTheTarget) {
  const BatchAnswer answer = ask(14.4e-3);
  ASSERT_TRUE(answer.prices);
  ASSERT_EQ(answer.prices->rows.size(), 5U);  // B_opt, the largest, three of replicas
  EXPECT_TRUE(*answer.prices->rows.front().meets_target);
  for (size_t i = 1; i < answer.prices->rows.size(); ++i) {
    EXPECT_FALSE(*answer.prices->rows[i].meets_target) << answer.prices->rows[i].setting;
  }
  EXPECT_FALSE(ask(std::nullopt).prices->rows.front().meets_target);
}

}  // namespace
}  // namespace headroom::batch
