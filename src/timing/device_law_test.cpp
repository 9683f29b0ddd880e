#include "timing/device_law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "timing/timing_model.h"
#include "timing/tiny_processor.h"

namespace headroom::timing {
namespace {

// A machine whose products are slow where they are narrow, and which is 2 % uncertain.
double seconds_on_it(const GemmShape& shape, std::mt19937& random) {
  const Call call = gemm_call(shape, device::Rate::fp32, 4);
  const double m = static_cast<double>(shape.m);
  const double roof = std::max(call.flops / 1e11, call.bytes / 2e10);
  const double factor = 1.3 + 0.5 / (1 + m / 16);
  return (5e-6 + roof * factor) * std::exp(std::normal_distribution<>(0, 0.02)(random));
}

std::vector<MeasuredPoint> points_of(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<> m(0, 10);
  std::uniform_real_distribution<> n(8, 14);
  std::vector<MeasuredPoint> points;
  for (size_t i = 0; i < count; ++i) {
    const GemmShape shape{.m = std::llround(std::exp2(m(random))),
                          .n = std::llround(std::exp2(n(random))),
                          .k = std::llround(std::exp2(n(random)))};
    points.push_back({gemm_call(shape, device::Rate::fp32, 4), seconds_on_it(shape, random)});
  }
  return points;
}

TEST(DeviceLaw, PredictsShapesThatItWasNotGiven) {
  const device::Device device = tiny_processor();
  const auto points = points_of(48, 1);
  const auto law = fit_device_law(device, points);
  ASSERT_TRUE(law) << law.error().to_string();
  TimingModel model = TimingModel::built_in();
  model.merge(LawFile{{}, {}, {}, {*law}});
  ASSERT_TRUE(model.correct(device, points));
  std::vector<double> errors;
  size_t inside = 0;
  size_t calibrated = 0;  // the rest lie beyond the 48 shapes
  const auto others = points_of(200, 2);
  for (const MeasuredPoint& point : others) {
    const auto time = model.predict(point.call, device);
    ASSERT_TRUE(time) << time.error().to_string();
    calibrated += time->provenance == Provenance::calibrated ? 1 : 0;
    errors.push_back(std::abs(time->seconds / point.seconds - 1));
    inside += time->seconds_low <= point.seconds && point.seconds <= time->seconds_high ? 1 : 0;
  }
  std::nth_element(errors.begin(), errors.begin() + 100, errors.end());
  EXPECT_LT(errors[100], 0.06);
  EXPECT_GT(calibrated, 150u);
  // A 90 % interval, on as many as say so within some points.
  EXPECT_GT(inside, 165u);
  const auto roofline = roofline_error_pct(device, others);
  ASSERT_TRUE(roofline);
  EXPECT_GT(*roofline, 100 * errors[100]);
}

TEST(DeviceLaw, ItsStatedErrorIsThatOfOtherShapes) {
  const device::Device device = tiny_processor();
  const auto law = fit_device_law(device, points_of(64, 3));
  ASSERT_TRUE(law);
  EXPECT_GT(law->large.rows + law->small.rows, 60);
  EXPECT_LT(law->large.median_error_pct, 10);
  EXPECT_GT(law->large.half_width_log, 0.01);  // no less than the noise
}

TEST(DeviceLaw, LeavesOutWhatOtherWorkDisturbed) {
  auto points = points_of(20, 4);
  points[3].uncertainty = 0.8;
  points[7].seconds *= 1e4;
  const auto kept = undisturbed(tiny_processor(), points);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->size(), 18u);
  TimingModel model = TimingModel::built_in();
  model.merge(LawFile{{}, {}, {}, {*fit_device_law(tiny_processor(), *kept)}});
  EXPECT_TRUE(model.correct(tiny_processor(), *kept));
}

// Else the law swings between points that other work moved, and far beyond them.
TEST(DeviceLaw, APointsNoiseIsWhatItsRoundsDifferBy) {
  auto points = points_of(64, 3);
  const double quiet = fit_device_law(tiny_processor(), points)->correction.noise_sd;
  for (MeasuredPoint& point : points) point.drift_log = 0.4;
  EXPECT_NEAR(fit_device_law(tiny_processor(), points)->correction.noise_sd, 0.4 / 0.6745 / 2,
              1e-9);
  EXPECT_LT(quiet, 0.1);
}

// What lies in a cache is faster than the roofline; the others tell what a call costs.
TEST(DeviceLaw, WhatBeatsTheRooflineHidesNoStart) {
  auto points = points_of(64, 3);
  const double start = fit_device_law(tiny_processor(), points)->start_seconds;
  EXPECT_GT(start, 0);
  points[0].seconds = points[0].call.bytes / 1e13;
  const double with_cache = fit_device_law(tiny_processor(), points)->start_seconds;
  EXPECT_GT(with_cache, 0);
}

TEST(DeviceLaw, BeyondItsPointsTheBoundaryHolds) {
  const auto points = points_of(64, 3);
  TimingModel model = TimingModel::built_in();
  model.merge(LawFile{{}, {}, {}, {*fit_device_law(tiny_processor(), points)}});
  ASSERT_TRUE(model.correct(tiny_processor(), points));
  const auto predicted = [&](int64_t m) {
    const Call call = gemm_call({.m = m, .n = 2048, .k = 2048}, device::Rate::fp32, 4);
    return *model.predict(call, tiny_processor());
  };
  const auto width = [](const PredictedTime& time) { return time.seconds_high / time.seconds; };
  // More rows than any point has, some and many.
  const PredictedTime within = predicted(512);
  const PredictedTime near = predicted(1 << 11);
  const PredictedTime far = predicted(1 << 20);
  EXPECT_NEAR(predicted(1 << 24).seconds / far.seconds, 16, 0.01);
  EXPECT_EQ(within.provenance, Provenance::calibrated) << within.basis;
  EXPECT_EQ(far.provenance, Provenance::extrapolated) << far.basis;
  EXPECT_GT(width(near), width(within));
  EXPECT_GT(width(far), width(near));
}

TEST(DeviceLaw, NeedsPointsAndFigures) {
  EXPECT_FALSE(fit_device_law(tiny_processor(), points_of(kLeastPointsOfALaw - 1, 1)));
  EXPECT_TRUE(fit_device_law(tiny_processor(), points_of(kLeastPointsOfALaw, 1)));
  device::Device nothing;
  nothing.name = "cpu";
  EXPECT_FALSE(fit_device_law(nothing, points_of(20, 1)));
}

// One shape again and again: features that do not differ, and residuals that hardly do.
TEST(DeviceLaw, PointsThatAreAllAlikeMakeNoInfinity) {
  std::vector<MeasuredPoint> points(20, points_of(1, 1).front());
  const auto law = fit_device_law(tiny_processor(), points);
  ASSERT_TRUE(law);
  EXPECT_TRUE(std::isfinite(law->large.half_width_log));
  EXPECT_TRUE(std::isfinite(law->correction.noise_sd));
  EXPECT_GE(law->correction.noise_sd, 1e-3);  // what law files ask for
}

// One call that does not beat the roofline, and takes long: it is no start of all the others.
TEST(DeviceLaw, ACallStartsInNoLongerThanTheShortestTakes) {
  auto points = points_of(24, 3);
  double shortest = 1;
  for (MeasuredPoint& point : points) {
    point.seconds = 0.5 * std::max(point.call.flops / 1e11, point.call.bytes / 2e10);
    shortest = std::min(shortest, point.seconds);
  }
  points.front().seconds = 0.9;
  const auto law = fit_device_law(tiny_processor(), points);
  ASSERT_TRUE(law) << law.error().to_string();
  EXPECT_LE(law->start_seconds, shortest);
}

// Whatever rounds differ by, a law file takes what comes out.
TEST(DeviceLaw, NoiseIsWhatLawFilesTake) {
  auto points = points_of(24, 3);
  for (MeasuredPoint& point : points) point.drift_log = 14;
  const auto law = fit_device_law(tiny_processor(), points);
  ASSERT_TRUE(law) << law.error().to_string();
  EXPECT_LE(law->correction.noise_sd, 10);
}

}  // namespace
}  // namespace headroom::timing
