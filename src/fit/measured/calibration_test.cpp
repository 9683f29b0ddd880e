// What a calibration promises, on random models: it removes what was put in and does no harm.
#include "fit/measured/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace headroom::fit {
namespace {

struct Law {
  double offset = 0;  // bytes
  double ratio = 1;
  double model_noise = 0;  // share, one draw a model
  double row_noise = 0;    // share, one draw a row
};

// `models` random models of 0.5 to 70 GB, each measured at one to six settings.
std::vector<CalibrationPoint> measured(std::mt19937_64& random, int models, const Law& law) {
  std::uniform_real_distribution<double> size(std::log(0.5e9), std::log(70e9));
  std::uniform_int_distribution<int> settings(1, 6);
  std::normal_distribution<double> normal;
  std::vector<CalibrationPoint> points;
  for (int m = 0; m < models; ++m) {
    const double base = std::exp(size(random));
    const double bias = 1 + law.model_noise * normal(random);
    for (int i = settings(random); i > 0; --i) {
      CalibrationPoint point;
      point.model = "model-" + std::to_string(m);
      point.device = "a100-sxm-80gb";
      const double predicted = base * (1 + 0.5 * i);
      const double noise = bias * (1 + law.row_noise * normal(random));
      point.predicted = Bytes(std::llround(predicted));
      point.measured = Bytes(std::llround(predicted * law.ratio * noise + law.offset));
      points.push_back(point);
    }
  }
  return points;
}

struct Halves {
  std::vector<CalibrationPoint> learned_on;
  std::vector<CalibrationPoint> held_aside;
};

// By model, never by row.
Halves halves_of(const std::vector<CalibrationPoint>& points, int models) {
  Halves halves;
  for (const CalibrationPoint& point : points) {
    const int model = std::stoi(point.model.substr(6));
    (model < models / 2 ? halves.learned_on : halves.held_aside).push_back(point);
  }
  return halves;
}

double median_error_pct(const std::vector<CalibrationPoint>& points, const CalibrationLaw& law) {
  std::vector<double> errors;
  for (const CalibrationPoint& point : points) {
    const auto truth = static_cast<double>(point.measured.count);
    errors.push_back(100 * std::abs(static_cast<double>(law.apply(point.predicted).count) - truth) /
                     truth);
  }
  std::ranges::sort(errors);
  return errors[errors.size() / 2];
}

struct Outcome {
  double before = 0;
  double after = 0;
  LawKind kind = LawKind::none;
};

Outcome outcome(const Halves& halves) {
  const std::vector<CalibrationLaw> laws = learn(halves.learned_on);
  EXPECT_EQ(laws.size(), 1U);
  return {median_error_pct(halves.held_aside, {}), median_error_pct(halves.held_aside, laws[0]),
          laws[0].kind};
}

TEST(Calibration, AccuratePredictionsAreNeverMadeWorse) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const int models = 2 + 2 * (trial % 6);
    const Law law{.model_noise = 0.004, .row_noise = 0.002};
    const Outcome out = outcome(halves_of(measured(random, models, law), models));
    EXPECT_LE(out.after, out.before) << "trial " << trial << ", " << name_of(out.kind);
  }
}

// Errors of several per cent without any system: a correction may arise by chance, but rarely.
TEST(Calibration, NoiseIsRarelyTakenForALaw) {
  std::mt19937_64 random(2);
  int worse = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    const int models = 4 + 2 * (trial % 5);
    const Law law{.model_noise = 0.05, .row_noise = 0.02};
    const Outcome out = outcome(halves_of(measured(random, models, law), models));
    worse += out.after > out.before ? 1 : 0;
  }
  EXPECT_LE(worse, kTrials / 100);
}

TEST(Calibration, AnInjectedOffsetIsRemoved) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    const int models = 6 + 2 * (trial % 4);
    const double offset = trial % 2 == 0 ? 1e9 : 4e9;
    const Law clean{.model_noise = 0.0001, .row_noise = 0.0001};
    Law shifted = clean;
    shifted.offset = offset;
    const Outcome out = outcome(halves_of(measured(random, models, shifted), models));
    EXPECT_LT(out.after, 0.1 * out.before) << "trial " << trial;
    EXPECT_EQ(out.kind, LawKind::offset) << "trial " << trial;
  }
}

TEST(Calibration, AnInjectedRatioIsRemoved) {
  std::mt19937_64 random(4);
  for (int trial = 0; trial < 200; ++trial) {
    const Law law{.ratio = 1.06, .model_noise = 0.001, .row_noise = 0.001};
    const Outcome out = outcome(halves_of(measured(random, 8, law), 8));
    EXPECT_LT(out.after, 0.1 * out.before) << "trial " << trial;
    EXPECT_EQ(out.kind, LawKind::ratio) << "trial " << trial;
  }
}

CalibrationPoint point(const char* model, int64_t predicted, int64_t measured) {
  CalibrationPoint p;
  p.model = model;
  p.device = "t4";
  p.predicted = Bytes(predicted * kMiB);
  p.measured = Bytes(measured * kMiB);
  return p;
}

TEST(Calibration, OneModelTeachesAnOffsetOnlyAtDifferentSizes) {
  EXPECT_EQ(learn({point("a", 1000, 1500), point("a", 1000, 1500)})[0].kind, LawKind::none);
  const CalibrationLaw law = learn({point("a", 1000, 1500), point("a", 4000, 4500)})[0];
  EXPECT_EQ(law.kind, LawKind::offset);
  EXPECT_EQ(law.offset, Bytes(500 * kMiB));
  EXPECT_NE(law.basis.find("other models may differ"), std::string::npos);
  // Growing with the size: no offset, and one model is not enough for a ratio.
  EXPECT_EQ(learn({point("a", 1000, 1500), point("a", 4000, 6000)})[0].kind, LawKind::none);
}

TEST(Calibration, ModelsThatDisagreeTeachNothing) {
  const CalibrationLaw law = learn({point("a", 1000, 1300), point("b", 2000, 1800),
                                    point("c", 3000, 3600), point("d", 4000, 3700)})[0];
  EXPECT_EQ(law.kind, LawKind::none);
  EXPECT_EQ(law.offset, Bytes(0));
  EXPECT_EQ(law.apply(Bytes(77)), Bytes(77));
  EXPECT_EQ(law.error_after_pct, law.error_before_pct);
}

TEST(Calibration, WhatNvidiaSmiShowsIsCorrectedOnMeasuredDevicesAlone) {
  std::vector<CalibrationPoint> points{point("a", 1000, 1500), point("a", 4000, 4500)};
  for (CalibrationPoint& p : points) p.metric = Metric::device_used;
  Calibration calibration;
  calibration.laws = learn(points);
  EXPECT_NE(calibration.law_for(Metric::device_used, "t4"), nullptr);
  EXPECT_EQ(calibration.law_for(Metric::device_used, "l4"), nullptr);
  EXPECT_EQ(calibration.law_for(Metric::peak_allocated, "t4"), nullptr);
}

TEST(Calibration, HostileFiguresStayWithinBounds) {
  const std::vector<CalibrationPoint> huge{point("a", 1, int64_t{1} << 41),
                                           point("b", 1, int64_t{1} << 41),
                                           point("c", int64_t{1} << 41, int64_t{1} << 41)};
  const CalibrationLaw law = learn(huge)[0];
  EXPECT_LE(std::abs(law.offset.count), kMostOffset.count);
  CalibrationLaw most;
  most.kind = LawKind::ratio;
  most.ratio = kMostRatio;
  EXPECT_EQ(most.apply(Bytes(INT64_MAX)), Bytes(int64_t{1} << 62));
  most.kind = LawKind::offset;
  most.offset = Bytes(-5);
  EXPECT_EQ(most.apply(Bytes(1)), Bytes(0));
  EXPECT_TRUE(learn({}).empty());
  EXPECT_TRUE(learn({point("a", 0, 1), point("a", 1, 0)}).empty());
}

}  // namespace
}  // namespace headroom::fit
