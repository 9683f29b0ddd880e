#include "bench/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace headroom::bench {
namespace {

using text::Json;
using text::JsonView;
using timing::OperatorClass;

// A processor of 20 GB/s and 100 GFLOP/s, without noise: what the runner would write of it.
Json point(const char* kind, Json shape, double bytes, double seconds) {
  return Json::object()
      .set("class", kind)
      .set("rate", "fp32")
      .set("shape", std::move(shape))
      .set("bytes", bytes)
      .set("seconds", seconds)
      .set("uncertainty", 0.01)
      .set("samples", 9);
}

Json machine(const char* kind, const char* product) {
  return Json::object()
      .set("product", product)
      .set("kind", kind)
      .set("memory_bytes", int64_t{1} << 34)
      .set("cache_bytes", 1 << 20)
      .set("units", 2)
      .set("torch", "2.13.0")
      .set("python", "3.11")
      .set("load", 0.1);
}

Json probe_json(const char* kind, const char* product, int64_t products = 16) {
  Json points = Json::array();
  for (int64_t i = 0; i < 16; ++i) {
    const int64_t rows = int64_t{16} << (i % 8);
    const int64_t width = 1024 + 512 * (i % 3);
    const double bytes = 12.0 * static_cast<double>(rows * width);
    points.push_back(point("elementwise", Json::object().set("rows", rows).set("width", width),
                           bytes, 1e-6 + bytes / 2e10));
  }
  for (int64_t i = 0; i < products; ++i) {
    const double m = static_cast<double>(int64_t{64} << (i % 4));
    const double k = 512.0 + 256.0 * static_cast<double>(i % 5);
    const Json shape = Json::object()
                           .set("batch", 1)
                           .set("m", static_cast<int64_t>(m))
                           .set("n", 1024)
                           .set("k", static_cast<int64_t>(k));
    points.push_back(point("gemm_fp32", shape, 4 * (m * k + k * 1024 + m * 1024),
                           2e-6 + 2 * m * k * 1024 / 1e11));
  }
  return Json::object()
      .set("schema", "headroom.probe/1")
      .set("machine", machine(kind, product))
      .set("points", std::move(points));
}

Result<DeviceAnswer> calibrated(const Json& json) {
  const auto probe = read_probe(JsonView(json, "test"));
  if (!probe) return probe.error();
  return calibrate(*probe, device::DeviceCatalogue::built_in());
}

TEST(BenchDevice, FiguresAreWhatWasReached) {
  const auto answer = calibrated(probe_json("cpu", "A processor"));
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->device.name, "cpu");
  EXPECT_NEAR(answer->device.bandwidth.value.value, 2e10, 5e8);
  EXPECT_EQ(answer->device.bandwidth.provenance, Provenance::measured);
  const auto& rate = answer->device.rate(device::Rate::fp32);
  EXPECT_GT(rate.value.value, 0.9e11);
  EXPECT_LE(rate.value.value, 1e11);
  ASSERT_EQ(answer->classes.size(), 2u);
  EXPECT_EQ(answer->calibration.points.size(), 32u);
}

Json block(int64_t mebibytes, double copied, double read) {
  return Json::object()
      .set("bytes", mebibytes << 20)
      .set("copy_bytes_per_second", copied)
      .set("read_bytes_per_second", read);
}

double bandwidth_by(Json blocks, int64_t cache) {
  Json probe = probe_json("cpu", "A processor");
  probe.set("machine", machine("cpu", "A processor").set("cache_bytes", cache));
  const auto answer = calibrated(probe.set("bandwidth", std::move(blocks)));
  if (!answer) ADD_FAILURE() << answer.error().to_string();
  return answer ? answer->device.bandwidth.value.value : 0;
}

// What a cache of 32 MiB still serves of a copy of twice as much (measured so) is no memory.
TEST(BenchDevice, BandwidthIsOfBlocksThatNoCacheHolds) {
  constexpr int64_t kCache = 32 << 20;
  Json blocks = Json::array();
  blocks.push_back(block(16, 310e9, 290e9)).push_back(block(64, 305.7e9, 90e9));
  blocks.push_back(block(256, 47.5e9, 41.7e9));
  EXPECT_DOUBLE_EQ(bandwidth_by(std::move(blocks), kCache), 47.5e9);
}

TEST(BenchDevice, NoSingleSizeMakesTheBandwidth) {
  constexpr int64_t kCache = 32 << 20;
  for (const size_t wrong : {0, 1, 2}) {
    Json blocks = Json::array();
    for (size_t i = 0; i < 3; ++i) {
      blocks.push_back(block(int64_t{128} << i, i == wrong ? 400e9 : 45e9, 41e9));
    }
    EXPECT_DOUBLE_EQ(bandwidth_by(std::move(blocks), kCache), 45e9) << wrong;
  }
  Json two = Json::array();
  two.push_back(block(256, 400e9, 41e9)).push_back(block(512, 45e9, 40e9));
  EXPECT_DOUBLE_EQ(bandwidth_by(std::move(two), kCache), 45e9);
}

TEST(BenchDevice, WhereMemoryIsShortTheLargestBlockBeyondTwoCachesCounts) {
  Json blocks = Json::array();
  blocks.push_back(block(64, 60e9, 50e9)).push_back(block(96, 44e9, 40e9));
  EXPECT_DOUBLE_EQ(bandwidth_by(std::move(blocks), 32 << 20), 44e9);
}

TEST(BenchDevice, ItsCalibrationPredictsAMachineThatKnowsNothingElse) {
  const auto answer = calibrated(probe_json("cpu", "A processor"));
  ASSERT_TRUE(answer);
  auto catalogue = device::DeviceCatalogue::built_in();
  auto model = timing::TimingModel::built_in();
  const Json file = timing::calibration_json(answer->calibration);
  const auto read = timing::read_calibration(JsonView(file, "test"));
  ASSERT_TRUE(read) << read.error().to_string();
  ASSERT_TRUE(timing::adopt(*read, catalogue, model));
  const auto call = timing::gemm_call({.m = 200, .n = 1024, .k = 900}, device::Rate::fp32, 4);
  const auto time = model.predict(call, *catalogue.find("cpu"));
  ASSERT_TRUE(time);
  EXPECT_NEAR(time->seconds, 2e-6 + call.flops / 1e11, 0.1 * time->seconds);
}

// Another fit of the points that were kept would leave out others, and state better laws.
TEST(BenchDevice, WhatWasKeptIsShownAsItIs) {
  const auto measured = calibrated(probe_json("cpu", "A processor"));
  ASSERT_TRUE(measured);
  timing::Calibration kept = measured->calibration;
  kept.laws.laws[0].large.median_error_pct = 77;
  kept.points[1].seconds *= 1000;  // disturbed() would leave it out
  const auto shown = describe(kept, device::DeviceCatalogue::built_in());
  ASSERT_TRUE(shown) << shown.error().to_string();
  ASSERT_EQ(shown->classes.size(), measured->classes.size());
  EXPECT_EQ(shown->classes[0].law.large.median_error_pct, 77);
  EXPECT_EQ(shown->calibration.points.size(), kept.points.size());
  int64_t points = 0;
  for (const ClassSummary& one : shown->classes) points += one.points;
  EXPECT_EQ(points, static_cast<int64_t>(kept.points.size()));
  EXPECT_FALSE(shown->disturbed);
}

TEST(BenchDevice, AClassOfTooFewPointsIsNamed) {
  const auto answer = calibrated(probe_json("cpu", "A processor", 5));
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->left_out, std::vector{OperatorClass::gemm_fp32});
  EXPECT_EQ(answer->calibration.points.size(), 16u);  // those that a law is used with
}

TEST(BenchDevice, AKnownGpuKeepsItsDatasheetAndAnUnknownOneGetsAName) {
  const auto known = calibrated(probe_json("cuda", "NVIDIA H100 80GB HBM3"));
  ASSERT_TRUE(known) << known.error().to_string();
  EXPECT_EQ(known->calibration.device, "h100-sxm-80gb");
  EXPECT_TRUE(known->calibration.devices.is_null());
  const auto unknown = calibrated(probe_json("cuda", "NVIDIA Z9000 (Engineering, sample)"));
  ASSERT_TRUE(unknown) << unknown.error().to_string();
  EXPECT_EQ(unknown->calibration.device, "nvidia-z9000-engineering-sample");
  EXPECT_FALSE(unknown->calibration.devices.is_null());
}

TEST(BenchDevice, WhatIsNoProbeIsRefused) {
  Json json = probe_json("cpu", "A processor");
  json.set("schema", "headroom.probe/2");
  EXPECT_FALSE(calibrated(json));
  json = probe_json("tpu", "A processor");
  EXPECT_FALSE(calibrated(json));
  json = probe_json("cpu", "A processor").set("points", Json::array());
  EXPECT_FALSE(calibrated(json));
}

Json tiny_step(double seconds) {
  const Json config = Json::object()
                          .set("model_type", "gpt2")
                          .set("n_layer", 4)
                          .set("n_embd", 256)
                          .set("n_head", 4)
                          .set("n_positions", 256)
                          .set("vocab_size", 512);
  return Json::object()
      .set("config", config)
      .set("batch", 1)
      .set("context", 64)
      .set("dtype", "fp32")
      .set("seconds", seconds);
}

TEST(BenchDevice, SmallModelsSayWhatTheHostTakesAnOperator) {
  Json probe = probe_json("cpu", "A processor");
  ASSERT_TRUE(calibrated(probe));
  EXPECT_TRUE(calibrated(probe)->calibration.laws.engines.empty());
  probe.set("steps", Json::array().push_back(tiny_step(0.05)).push_back(tiny_step(0.07)));
  const auto answer = calibrated(probe);
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_EQ(answer->calibration.laws.engines.size(), 1U);
  const timing::Engine& engine = answer->calibration.laws.engines[0];
  EXPECT_EQ(engine.device, "cpu");
  EXPECT_TRUE(engine.is_eager);
  // Some hundred operators: nearly all of the step is the host's.
  EXPECT_GT(engine.host_seconds_per_operator, 0.05 / 500);
  EXPECT_LT(engine.host_seconds_per_operator, 0.07 / 50);
  // Each of the two by the other alone.
  EXPECT_NEAR(engine.median_error_pct, 40, 2);
  const auto read =
      timing::read_calibration(JsonView(timing::calibration_json(answer->calibration), "test"));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->laws.engines[0].host_seconds_per_operator, engine.host_seconds_per_operator);
  EXPECT_TRUE(read->laws.engines[0].is_eager);
}

TEST(BenchDevice, AStepOfTheRunnerThatIsNoneIsRefused) {
  Json probe = probe_json("cpu", "A processor");
  probe.set("steps", Json::array().push_back(tiny_step(-1)));
  EXPECT_FALSE(calibrated(probe));
}

// The elementwise points again, each later by `later` and with rounds `drift` apart.
timing::Calibration run_of(double later, double drift) {
  timing::Calibration calibration = calibrated(probe_json("cpu", "A processor"))->calibration;
  for (timing::MeasuredPoint& point : calibration.points) {
    point.seconds *= later;
    point.drift_log = drift;
  }
  return calibration;
}

Result<Agreement> compared(const timing::Calibration& earlier, const timing::Calibration& later) {
  return agreement(earlier, later, device::DeviceCatalogue::built_in());
}

TEST(BenchDevice, RunsAgreeWithinTheSpreadThatTheirRoundsTell) {
  const auto same = compared(run_of(1, 0.1), run_of(1.05, 0.1));
  ASSERT_TRUE(same) << same.error().to_string();
  EXPECT_EQ(same->points, 32);
  EXPECT_EQ(same->within, 32);
  EXPECT_EQ(agrees(*same), true);
  EXPECT_NEAR(*same->classes[0].stated_pct, 100 * std::expm1(0.1 / std::sqrt(2.0)), 1e-6);
  EXPECT_NEAR(same->classes[0].median_ratio_pct, 5, 1e-6);
  const auto other = compared(run_of(1, 0.1), run_of(1.2, 0.1));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->within, 0);
  EXPECT_EQ(agrees(*other), false);
}

// A round says nothing of what another one would have said.
TEST(BenchDevice, OneRoundKnowsNoSpread) {
  const auto once = calibrated(probe_json("cpu", "A processor"));
  ASSERT_TRUE(once);
  for (const ClassSummary& one : once->classes) EXPECT_FALSE(one.spread_pct);
  const auto unlike = compared(run_of(1, 0.1), run_of(1.5, 0));
  ASSERT_TRUE(unlike) << unlike.error().to_string();
  EXPECT_EQ(unlike->points, 32);
  EXPECT_EQ(unlike->judged, 0);
  EXPECT_FALSE(unlike->classes[0].stated_pct);
  EXPECT_FALSE(agrees(*unlike).has_value());
}

// Shapes of a later run that the earlier one does not hold, as they take and twice that.
TEST(BenchDevice, ShapesThatTheEarlierRunDidNotMeasureJudgeItsLaws) {
  const timing::Calibration whole = run_of(1, 0.1);
  timing::Calibration earlier = whole;
  timing::Calibration later = whole;
  earlier.points.clear();
  later.points.clear();
  for (size_t i = 0; i < whole.points.size(); ++i) {
    (i % 2 == 0 ? earlier : later).points.push_back(whole.points[i]);
  }
  const auto judged = compared(earlier, later);
  ASSERT_TRUE(judged) << judged.error().to_string();
  EXPECT_EQ(judged->points, 0);
  EXPECT_FALSE(agrees(*judged).has_value());
  EXPECT_EQ(judged->unseen.points, static_cast<int64_t>(later.points.size()));
  EXPECT_LT(judged->unseen.median_error_pct, 10);
  EXPECT_GE(10 * judged->unseen.in_interval, 8 * judged->unseen.points);
  for (timing::MeasuredPoint& point : later.points) point.seconds *= 2;
  const auto slower = compared(earlier, later);
  ASSERT_TRUE(slower);
  EXPECT_NEAR(slower->unseen.median_error_pct, 50, 8);
  ASSERT_FALSE(slower->unseen_by_class.empty());
}

TEST(BenchDevice, RunsOfTwoMachinesAreNotCompared) {
  timing::Calibration other = run_of(1, 0.1);
  other.machine.units = 64;
  EXPECT_FALSE(compared(run_of(1, 0.1), other));
  other = run_of(1, 0.1);
  other.points.clear();
  EXPECT_FALSE(compared(run_of(1, 0.1), other));
}

}  // namespace
}  // namespace headroom::bench
