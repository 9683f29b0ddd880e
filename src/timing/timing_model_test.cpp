#include "timing/timing_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "device/catalogue.h"

namespace headroom::timing {
namespace {

using device::Device;
using device::Rate;

const Device& device_named(const char* name) {
  static const device::DeviceCatalogue catalogue = device::DeviceCatalogue::built_in();
  static std::vector<std::unique_ptr<Device>> kept;
  kept.push_back(std::make_unique<Device>(*catalogue.find(name)));
  return *kept.back();
}

const TimingModel& model() {
  static const TimingModel built_in = TimingModel::built_in();
  return built_in;
}

Call large_product() { return gemm_call({.m = 1024, .n = 32768, .k = 8192}, Rate::bf16, 2); }

TEST(TimingModel, EveryClassHasAGeneralLaw) {
  for (size_t i = 0; i < kOperatorClasses; ++i) {
    const auto kind = static_cast<OperatorClass>(i);
    const Law* law = model().law_for(kind, "a device of nobody");
    if (is_of_processors(kind)) {  // that were measured
      EXPECT_EQ(law, nullptr);
      continue;
    }
    ASSERT_NE(law, nullptr) << i;
    EXPECT_TRUE(law->device.empty());
    EXPECT_GE(law->devices.size(), 2U);
    EXPECT_GT(law->large.half_width_log, 0);
  }
}

TEST(TimingModel, AnActivationWithoutALawIsElementwise) {
  const RowsShape shape{4096, 4096};
  const Call call = rows_call(OperatorClass::activation, shape, 8.0 * 4096 * 4096);
  const Call other = rows_call(OperatorClass::elementwise, shape, 8.0 * 4096 * 4096);
  const device::Device device = device_named("h100-sxm-80gb");
  const auto time = model().predict(call, device);
  ASSERT_TRUE(time) << time.error().to_string();
  EXPECT_EQ(time->seconds, model().predict(other, device)->seconds);
  EXPECT_NE(time->basis.find("elementwise"), std::string::npos);
  const Call of_tanh = rows_call(OperatorClass::gelu_tanh, shape, 8.0 * 4096 * 4096);
  EXPECT_EQ(model().predict(of_tanh, device)->seconds, time->seconds);
}

TEST(TimingModel, ADeviceWithTablesHasItsOwnLaw) {
  const PredictedTime time = *model().predict(large_product(), device_named("h100-sxm-80gb"));
  EXPECT_EQ(time.provenance, Provenance::interpolated) << time.basis;
  // 0.55 TFLOP at 989 TFLOP/s: 0.56 ms at the peak, and large products reach most of it.
  EXPECT_NEAR(time.roofline_seconds, 0.5557e-3, 1e-6);
  EXPECT_GT(time.seconds, time.roofline_seconds);
  EXPECT_LT(time.seconds, 2 * time.roofline_seconds);
  EXPECT_LT(time.seconds_low, time.seconds);
  EXPECT_GT(time.seconds_high, time.seconds);
  EXPECT_NE(time.basis.find("h100-sxm-80gb"), std::string::npos);
}

TEST(TimingModel, AnUnseenDeviceIsExtrapolatedWithAWiderInterval) {
  const PredictedTime known = *model().predict(large_product(), device_named("h100-sxm-80gb"));
  const PredictedTime unseen = *model().predict(large_product(), device_named("b200-sxm-180gb"));
  EXPECT_EQ(unseen.provenance, Provenance::extrapolated);
  EXPECT_GT(unseen.seconds_high / unseen.seconds, known.seconds_high / known.seconds);
  EXPECT_LT(unseen.seconds, known.seconds);  // 2.3 times the rate
}

// The H100's table of products is of bf16: what it says of others is as sure as of a device that no
// table has.
TEST(TimingModel, WhatTheTablesLackIsExtrapolatedWithTheGeneralLawsWidth) {
  const Device& h100 = device_named("h100-sxm-80gb");
  const PredictedTime known = *model().predict(large_product(), h100);
  Call stand_in = large_product();
  stand_in.is_stand_in = true;
  Call half = large_product();
  half.rate = Rate::fp16;
  EXPECT_EQ(model().predict(half, h100)->provenance, Provenance::interpolated);
  EXPECT_TRUE(
      model()
          .predict(stand_in, h100)
          ->basis.ends_with("; the law of gemm stands in for kernels that have none of their own"));
  const double general = model().law_for(OperatorClass::gemm, "")->large.half_width_log;
  for (const Call& call : {stand_in, gemm_call({.m = 1024, .n = 32768, .k = 8192}, Rate::fp8, 1),
                           gemm_call({.m = 1024, .n = 32768, .k = 8192}, Rate::int8, 1)}) {
    const PredictedTime time = *model().predict(call, h100);
    EXPECT_EQ(time.provenance, Provenance::extrapolated) << time.basis;
    EXPECT_NEAR(std::log(time.seconds_high / time.seconds), general, 1e-9);
    EXPECT_GT(time.seconds_high / time.seconds, known.seconds_high / known.seconds);
    EXPECT_NE(time.basis.find("; "), std::string::npos);
  }
}

TEST(TimingModel, LargeMessagesAreBoundByTheLink) {
  const Device& h100 = device_named("h100-sxm-80gb");
  const auto time = [&](int64_t message, OperatorClass kind) {
    return *model().predict(all_reduce_call(kind, {.group = 8, .message = message}), h100);
  };
  const PredictedTime large = time(32 * kMiB, OperatorClass::all_reduce);
  EXPECT_EQ(large.provenance, Provenance::interpolated) << large.basis;
  EXPECT_GT(large.seconds, large.roofline_seconds);
  EXPECT_LT(large.seconds, 3 * large.roofline_seconds);
  // A few KiB: latency, of which the graph's kernel has less.
  EXPECT_GT(time(8192, OperatorClass::all_reduce).seconds, 5e-6);
  EXPECT_LT(time(8192, OperatorClass::all_reduce_graph).seconds, 1e-5);
}

TEST(TimingModel, KnowsWhatAnEngineAdds) {
  ASSERT_FALSE(model().engines().empty());
  const Engine& engine = model().engines().front();
  EXPECT_EQ(engine.name, "vllm-0.6.3");
  EXPECT_GT(engine.host_base_seconds, 1e-4);
  EXPECT_GT(engine.half_width_log, 0);
}

// V1 has been vLLM's default since 0.8: what is older works as 0.6.3 did.
TEST(TimingModel, TodaysEngineIsTheDefaultAndAFormerOneIsAskedFor) {
  const Engine* today = model().engine_on("h100-sxm-80gb");
  ASSERT_NE(today, nullptr);
  EXPECT_FALSE(today->is_former());
  EXPECT_TRUE(today->step_half_width);
  for (const char* former : {"0.6", "0.6.3.post1", "0.7.9", "0"}) {
    ASSERT_NE(model().engine_of("vllm", former), nullptr) << former;
    EXPECT_EQ(model().engine_of("vllm", former)->name, "vllm-0.6.3") << former;
  }
  for (const char* newer : {"0.8", "0.8.0", "0.10", "0.32", "1"}) {
    EXPECT_EQ(model().engine_of("vllm", newer), today) << newer;
  }
  EXPECT_EQ(model().engine_of("sglang", "0.3"), today);
  EXPECT_EQ(model().engine_on("h100-sxm-80gb", "vllm-0.6.3"), model().engine_of("vllm", "0.6"));
  EXPECT_EQ(model().engine_on("h100-sxm-80gb", "nobody's"), nullptr);
}

TEST(TimingModel, EveryKnownGpuIsAnswered) {
  const auto catalogue = device::DeviceCatalogue::built_in();
  for (const Device& device : catalogue.devices()) {
    const Rate rate = device.rate(Rate::bf16).known() ? Rate::bf16 : Rate::fp16;
    const auto time = model().predict(gemm_call({.m = 64, .n = 4096, .k = 4096}, rate, 2), device);
    if (device.vendor == device::Vendor::cpu) {
      ASSERT_FALSE(time);
      EXPECT_EQ(time.error().code, ErrorCode::unavailable);
    } else {
      ASSERT_TRUE(time) << device.name << ": " << time.error().to_string();
      EXPECT_TRUE(std::isfinite(time->seconds) && time->seconds > 0) << device.name;
    }
  }
}

TEST(TimingModel, PointsCorrectTheGeneralLaw) {
  const Device& device = device_named("b200-sxm-180gb");
  TimingModel mine = TimingModel::built_in();
  const PredictedTime before = *mine.predict(large_product(), device);
  std::vector<MeasuredPoint> points;
  for (const int64_t n : {8192, 16384, 32768, 65536}) {
    const Call call = gemm_call({.m = 1024, .n = n, .k = 8192}, Rate::bf16, 2);
    points.push_back({call, 1.4 * mine.predict(call, device)->seconds});
  }
  ASSERT_TRUE(mine.correct(device, points));
  const PredictedTime after = *mine.predict(large_product(), device);
  EXPECT_EQ(after.provenance, Provenance::calibrated);
  EXPECT_NEAR(after.seconds / before.seconds, 1.4, 0.03);
  EXPECT_LT(after.seconds_high / after.seconds, before.seconds_high / before.seconds);
  // Of another device and another class they say nothing.
  EXPECT_EQ(mine.predict(large_product(), device_named("h200"))->seconds,
            model().predict(large_product(), device_named("h200"))->seconds);
  const Call add = rows_call(OperatorClass::elementwise, {.rows = 8192, .width = 8192}, 8e8);
  EXPECT_EQ(mine.predict(add, device)->seconds, model().predict(add, device)->seconds);
}

TEST(TimingModel, PointsThatCannotBeAreRefused) {
  const Device& device = device_named("h200");
  TimingModel mine = TimingModel::built_in();
  for (const double seconds : {0.0, -1.0, std::nan(""), 1e300, 1e-300}) {
    EXPECT_FALSE(mine.correct(device, {{large_product(), seconds}})) << seconds;
  }
  EXPECT_FALSE(mine.correct(
      device, std::vector<MeasuredPoint>(TimingModel::kMostPoints + 1, {large_product(), 1e-3})));
  EXPECT_EQ(mine.predict(large_product(), device)->provenance, Provenance::extrapolated);
}

TEST(TimingModel, AUsersLawReplacesOurs) {
  TimingModel mine = TimingModel::built_in();
  const size_t laws = mine.laws().size();
  ASSERT_TRUE(mine.merge(R"({"schema": "headroom.timing/1", "laws": [{"class": "gemm",
      "device": "h100-sxm-80gb", "start_seconds": 0, "intercept": 0, "tables": [],
      "errors": {"large": {"rows": 0, "half_width_log": 0.1},
                 "small": {"rows": 0, "half_width_log": 0.1}}}]})",
                         "u.json"));
  EXPECT_EQ(mine.laws().size(), laws);
  const PredictedTime time = *mine.predict(large_product(), device_named("h100-sxm-80gb"));
  EXPECT_NEAR(time.seconds / time.roofline_seconds, 1, 0.01);
  ASSERT_FALSE(mine.merge("{", "u.json"));
  EXPECT_EQ(mine.laws().size(), laws);
}

// Points side by side that contradict each other, under a law that hears no noise.
TEST(TimingModel, PointsThatContradictEachOtherMakeNoInfinity) {
  const Device& device = device_named("h100-sxm-80gb");
  Law law;
  law.kind = OperatorClass::gemm;
  law.device = device.name;
  law.devices = {device.name};
  law.rates = {Rate::bf16};
  law.can_correct = true;
  law.correction = {.features = {Feature::k}, .center = {7}, .scale = {1}};
  law.correction.offset_sd = law.correction.local_sd = 10;
  law.correction.noise_sd = 1e-3;
  TimingModel hostile = TimingModel::built_in();
  hostile.merge(LawFile{{}, {}, {}, {law}});
  const auto product = [](int64_t k) {
    return gemm_call({.m = 64, .n = 1024, .k = k}, Rate::bf16, 2);
  };
  std::vector<MeasuredPoint> points;
  for (const auto& [k, residual] :
       {std::pair{1000, 5.9}, std::pair{1001, -5.9}, std::pair{100, 0.0}, std::pair{100000, 0.0}}) {
    const double seconds = hostile.predict(product(k), device)->seconds;
    points.push_back({product(k), seconds * std::exp(residual)});
  }
  const TimingModel plain = hostile;
  ASSERT_TRUE(hostile.correct(device, points));
  for (int64_t k = 64; k <= 131072; k = k * 5 / 4) {
    const auto time = hostile.predict(product(k), device);
    ASSERT_TRUE(time) << time.error().to_string();
    const double factor = time->seconds / plain.predict(product(k), device)->seconds;
    EXPECT_LE(std::abs(std::log(factor)), TimingModel::kMostResidual + 1e-9) << k;
    EXPECT_TRUE(std::isfinite(time->seconds_high)) << k;
    EXPECT_GT(time->seconds, 0) << k;
  }
}

}  // namespace
}  // namespace headroom::timing
