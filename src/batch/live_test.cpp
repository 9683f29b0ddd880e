// The loop against laws that it does not know, without a network.
#include "batch/live.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "batch/advisor.h"
#include "batch/batch.h"
#include "batch/curve.h"

namespace headroom::batch {
namespace {

// A server whose steps take a + b n, bent a little, measured with noise.
class SyntheticMeter : public BatchMeter {
 public:
  explicit SyntheticMeter(uint64_t seed) : random_(seed) {
    std::uniform_real_distribution<double> uniform;
    base_ = 3e-3 * std::pow(10, uniform(random_));
    half_ = 10 * std::pow(20, uniform(random_));
    bend_ = 0.1 * (uniform(random_) - 0.5);
  }
  [[nodiscard]] double truth(double batch) const {
    return base_ * (1 + batch / half_) * (1 + bend_ * std::sin(std::log2(batch)));
  }
  Result<LiveMeasurement> measure(int64_t batch, Care /*care*/) override {
    if (fails_after == 0) return Error{ErrorCode::unavailable, "it died", {}, {}};
    --fails_after;
    requests += batch;
    std::normal_distribution<double> noise(0, noise_);
    const int64_t running = std::min(batch, limit);
    LiveMeasurement made;
    made.summary.concurrency = batch;
    made.summary.itl_seconds = truth(static_cast<double>(running)) * std::exp(noise(random_));
    made.summary.throughput_tokens_per_second = static_cast<double>(running) /
                                                truth(static_cast<double>(running)) *
                                                std::exp(noise(random_));
    made.summary.running_mean = static_cast<double>(running);
    made.summary.server_waiting = static_cast<double>(batch - running);
    made.summary.is_void = is_void;
    made.summary.throughput_error = made.summary.itl_error = noise_;
    made.point = point_of(made.summary);
    return made;
  }
  int fails_after = 1000;
  int64_t limit = 65536;
  bool is_void = false;
  int64_t requests = 0;

 private:
  std::mt19937_64 random_;
  double base_ = 0;
  double half_ = 0;
  double bend_ = 0;
  double noise_ = 0.005;
};

LiveOptions options_of(double multiple) {
  LiveOptions options;
  options.slo = ItlTarget{.seconds = std::nullopt, .multiple = multiple, .at_batch = 32};
  return options;
}

// By the definition, from the law itself.
int64_t best_by_truth(const SyntheticMeter& meter, const LiveOptions& options) {
  int64_t best = 1;
  for (const int64_t batch : usual_limits(1, options.most_batch)) {
    const auto b = static_cast<double>(batch);
    const double efficiency = meter.truth(1) / meter.truth(b);
    const bool is_fast = meter.truth(b) <= options.slo->multiple * meter.truth(32);
    if (efficiency > options.min_efficiency && is_fast) best = batch;
  }
  return best;
}

TEST(LiveLoop, FindsTheBestBatchOfHiddenLaws) {
  int right = 0;
  int measurements = 0;
  int sure = 0;
  constexpr int kSeeds = 60;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SyntheticMeter meter(seed);
    const LiveOptions options = options_of(1.5 + 0.05 * static_cast<double>(seed));
    const LiveResult result = measure_live(meter, options);
    ASSERT_FALSE(result.error);
    BatchQuestion question;
    question.points = points_of(result.measurements);
    question.slo = options.slo;
    const auto model = timing::TimingModel::built_in();
    const auto said = answer(question, nullptr, model);
    ASSERT_TRUE(said);
    right += said->advice.batch == best_by_truth(meter, options) ? 1 : 0;
    sure += result.is_sure ? 1 : 0;
    measurements += static_cast<int>(result.measurements.size());
  }
  EXPECT_GE(right, kSeeds - 3);  // where the truth is within the noise of the target, either may be
  EXPECT_GE(sure, kSeeds - 10);
  EXPECT_LE(measurements, 7 * kSeeds);  // of sixteen limits
}

TEST(LiveLoop, KnowsTheServersOwnLimit) {
  SyntheticMeter meter(3);
  meter.limit = 48;
  const LiveResult result = measure_live(meter, options_of(20));
  ASSERT_FALSE(result.error);
  for (const LiveMeasurement& measurement : result.measurements) {
    EXPECT_LE(measurement.point.batch, 48);
  }
  ASSERT_FALSE(result.notes.empty());
  EXPECT_NE(result.notes[0].find("48 were in flight"), std::string::npos);
}

TEST(LiveLoop, KeepsWhatItHasWhenTheServerDies) {
  SyntheticMeter meter(3);
  meter.fails_after = 3;
  size_t kept = 0;
  LiveOptions options = options_of(2);
  options.on_measured = [&](const auto& measurements) {
    kept = measurements.size();
    return Result<void>();
  };
  const LiveResult result = measure_live(meter, options);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message, "it died");
  EXPECT_EQ(result.measurements.size(), 3u);
  EXPECT_EQ(kept, 3u);
  EXPECT_FALSE(result.is_sure);
}

TEST(LiveLoop, AVoidRunIsNoPoint) {
  SyntheticMeter meter(3);
  meter.is_void = true;
  const LiveResult result = measure_live(meter, options_of(2));
  EXPECT_TRUE(result.measurements.empty());
  ASSERT_TRUE(result.error);
  EXPECT_NE(result.error->message.find("too busy"), std::string::npos);
}

TEST(LiveLoop, StopsInTime) {
  SyntheticMeter meter(3);
  LiveOptions options = options_of(2);
  int looks = 0;
  options.is_late = [&] { return ++looks > 2; };
  const LiveResult result = measure_live(meter, options);
  EXPECT_EQ(result.measurements.size(), 2u);
  EXPECT_FALSE(result.is_sure);
  EXPECT_TRUE(result.is_stopped);
}

}  // namespace
}  // namespace headroom::batch
