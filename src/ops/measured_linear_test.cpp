#include "ops/measured_linear.h"

#include <gtest/gtest.h>

#include "device/catalogue.h"
#include "ops/ops.h"
#include "ops/tiny_trace.h"
#include "timing/device_law.h"

namespace headroom::ops {
namespace {

using formats::TraceEventKind;
using timing::GemmShape;
using timing::MeasuredPoint;
using timing::OperatorClass;

const OperatorRules& rules() {
  static const OperatorRules kRules = *OperatorRules::load("");
  return kRules;
}

device::Device processor() {
  device::Device device = *device::DeviceCatalogue::built_in().find(
      "cpu,fp32=100GFLOPS,int8=400GFLOPS,bandwidth=100GB/s,l2=1MB");
  device.sm_count = {1, Provenance::measured, "a test"};
  return device;
}

// Products at 100 GFLOP/s, `times` as fast.
std::vector<MeasuredPoint> points_of(OperatorClass kind, double times) {
  std::vector<MeasuredPoint> points;
  for (int64_t i = 0; i < 24; ++i) {
    const GemmShape shape{.m = 16 << (i % 4), .n = 256 << (i % 3), .k = 256 << (i / 8)};
    const bool is_int8 = kind == OperatorClass::linear_int8;
    MeasuredPoint point{is_int8 ? timing::linear_int8_call(shape, 4)
                                : timing::gemm_call(shape, device::Rate::fp32, 4)};
    point.seconds = point.call.flops / 1e11 / times;
    points.push_back(point);
  }
  return points;
}

timing::TimingModel measured(const device::Device& device, bool has_int8) {
  timing::TimingModel model;
  timing::LawFile laws;
  std::vector<MeasuredPoint> all = points_of(OperatorClass::gemm_fp32, 1);
  laws.laws.push_back(*timing::fit_device_law(device, all));
  if (has_int8) {
    const auto more = points_of(OperatorClass::linear_int8, 4);
    laws.laws.push_back(*timing::fit_device_law(device, more));
    all.insert(all.end(), more.begin(), more.end());
  }
  model.merge(std::move(laws));
  EXPECT_TRUE(model.correct(device, all));
  return model;
}

// A linear layer of 600 us and an activation of 400.
RecordedRun run_with(const char* type) {
  TinyTrace tiny;
  tiny.step(1, 0, 1000)
      .add(TraceEventKind::host_operator, "aten::addmm", 0, 600)
      .add(TraceEventKind::host_operator, "aten::gelu", 600, 1000);
  formats::Trace trace = tiny.build();
  const std::string shapes = std::string("[[512],[64,256],[256,512]] [\"") + type + "\",\"" + type +
                             "\",\"" + type + "\"]";
  for (formats::TraceEvent& event : trace.events) {
    if (trace.name_of(event) == "aten::addmm") event.detail = trace.names.intern(shapes);
  }
  return *run_of(std::move(trace), rules());
}

const HorizonChange* int8_of(const OpsAnswer& answered) {
  for (const HorizonChange& change : answered.horizon) {
    if (change.change == "gemm_int8_fused") return &change;
  }
  return nullptr;
}

TEST(MeasuredLinear, LayersTakeWhatTheLawsSayOfTheirShape) {
  const device::Device device = processor();
  const timing::TimingModel laws = measured(device, true);
  const OpsAnswer answered = answer(run_with("float"), rules(), {.device = &device, .laws = &laws});
  const HorizonChange* int8 = int8_of(answered);
  ASSERT_NE(int8, nullptr);
  EXPECT_NEAR(int8->speedup, 1000.0 / (1000 - 600 * 0.75), 0.1);
  EXPECT_LT(int8->speedup_low, int8->speedup);
  EXPECT_GT(int8->speedup_high, int8->speedup);
}

TEST(MeasuredLinear, WhatWasNotMeasuredIsNotPredicted) {
  const device::Device device = processor();
  const timing::TimingModel without = measured(device, false);
  EXPECT_EQ(int8_of(answer(run_with("float"), rules(), {.device = &device, .laws = &without})),
            nullptr);
  const timing::TimingModel laws = measured(device, true);
  const Against against{.device = &device, .laws = &laws};
  EXPECT_EQ(int8_of(answer(run_with("c10::BFloat16"), rules(), against)), nullptr);
  device::Device other = device;
  other.name = "another";
  EXPECT_EQ(int8_of(answer(run_with("float"), rules(), {.device = &other, .laws = &laws})),
            nullptr);
}

}  // namespace
}  // namespace headroom::ops
