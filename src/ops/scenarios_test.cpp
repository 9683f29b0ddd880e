#include "ops/scenarios.h"

#include <gtest/gtest.h>

#include "ops/capture.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

const OperatorRules& rules() {
  static const OperatorRules kRules = *OperatorRules::load("");
  return kRules;
}

// 1 TB/s; 10 TFLOP/s in fp32, 40 TOP/s in int8.
device::Device tiny_device(const char* name, double bandwidth, double fp32) {
  device::Device device;
  device.name = name;
  device.bandwidth = {BytesPerSecond{bandwidth}, Provenance::datasheet, "a test"};
  const auto set = [&](device::Rate rate, double flops) {
    device.dense_rates[static_cast<size_t>(rate)] = {FlopsPerSecond{flops}, Provenance::datasheet,
                                                     "a test"};
  };
  set(device::Rate::fp32, fp32);
  set(device::Rate::int8, 4e13);
  return device;
}

// A matmul whose floor of 215 us it takes, then three elementwise operators of 8 MB each way.
struct Prepared {
  RecordedRun run;
  Recording recording;
};

Prepared recorded(formats::Trace trace) {
  Prepared made{*run_of(std::move(trace), rules()), {}};
  made.recording = *record(made.run.trace, made.run.links, made.run.work, rules());
  return made;
}

Prepared prepared(bool is_interrupted = false) {
  TinyTrace tiny;
  tiny.step(1, 0, 2000)
      .launched("aten::mm", 10, 20, "sgemm", 30, 245)
      .launched("aten::gelu", 40, 50, "gelu elementwise", 246, 262)
      .launched(is_interrupted ? "aten::copy_" : "aten::tanh", 60, 70, "tanh elementwise", 263, 279)
      .launched("aten::neg", 80, 90, "neg elementwise", 280, 296)
      .add(formats::TraceEventKind::call, "cudaDeviceSynchronize", 100, 305, 900);
  formats::Trace trace = tiny.build();
  for (formats::TraceEvent& event : trace.events) {
    if (event.kind != formats::TraceEventKind::host_operator) continue;
    const bool is_mm = trace.name_of(event) == "aten::mm";
    event.detail = trace.names.intern(is_mm ? R"([[1024,1024],[1024,1024]] ["float","float"])"
                                            : R"([[2097152]] ["float"])");
  }
  return recorded(std::move(trace));
}

// Ten activations in a row; where `is_awaited` the host waits for each.
Prepared activations(bool is_awaited) {
  TinyTrace tiny;
  tiny.step(1, 0, 1000);
  for (int64_t i = 0; i < 10; ++i) {
    const int64_t begin = 10 + 50 * i;
    tiny.launched("aten::relu", begin, begin + 5, "relu elementwise", begin + 8, begin + 24);
    if (is_awaited) {
      tiny.add(formats::TraceEventKind::call, "cudaDeviceSynchronize", begin + 6, begin + 30,
               900 + i);
    }
  }
  formats::Trace trace = tiny.build();
  for (formats::TraceEvent& event : trace.events) {
    if (event.kind != formats::TraceEventKind::host_operator) continue;
    event.detail = trace.names.intern(R"([[2097152]] ["float"])");
  }
  return recorded(std::move(trace));
}

const Scenario* find(const std::vector<Scenario>& all, std::string_view change) {
  for (const Scenario& one : all) {
    if (one.change == change) return &one;
  }
  return nullptr;
}

double total_ns(const Prepared& made, const timing::ReplayChange& change) {
  return timing::simulate(made.recording.program, change).total_ns;
}

// Of six passes over the tensor two are left: the first read and the last write.
TEST(Scenarios, AFusedChainReadsAndWritesOnce) {
  const Prepared made = prepared();
  const auto all = scenarios(made.recording, made.run, rules(), nullptr, nullptr).all;
  const Scenario* fused = find(all, "fuse_elementwise");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(all.size(), 1U);
  EXPECT_NEAR(fused->made.kernel_factors[1], 0.5, 1e-12);
  EXPECT_NEAR(fused->made.kernel_factors[2], 0.0, 1e-12);
  EXPECT_NEAR(fused->made.kernel_factors[3], 0.5, 1e-12);
  EXPECT_EQ(fused->made.kernel_factors[0], 1);
  EXPECT_FALSE(fused->made.is_call_removed[1]);
  EXPECT_TRUE(fused->made.is_call_removed[2]);
  EXPECT_TRUE(fused->made.is_call_removed[3]);
  EXPECT_NEAR(fused->saved_ms, 0.032, 1e-9);
  ASSERT_EQ(fused->spanned.size(), 1U);
  EXPECT_LE(total_ns(made, fused->made), total_ns(made, fused->spanned[0]));
  EXPECT_LT(total_ns(made, fused->spanned[0]), total_ns(made, {}));
}

TEST(Scenarios, WhatIsBetweenBreaksAChain) {
  const Prepared made = prepared(true);
  EXPECT_EQ(
      find(scenarios(made.recording, made.run, rules(), nullptr, nullptr).all, "fuse_elementwise"),
      nullptr);
}

TEST(Scenarios, AWaitOfTheHostBreaksAChain) {
  for (const bool is_awaited : {false, true}) {
    const Prepared made = activations(is_awaited);
    const auto all = scenarios(made.recording, made.run, rules(), nullptr, nullptr).all;
    EXPECT_EQ(find(all, "fuse_elementwise") == nullptr, is_awaited);
  }
}

// 2 GFLOP at 40 TOP/s take a quarter of what they take at 10 TFLOP/s; quantizing reads 4 MB and
// writes 1, dequantizing reads and writes 4 MB each, at 0.75 TB/s.
TEST(Scenarios, LinearLayersInInt8) {
  const Prepared made = prepared();
  const device::Device device = tiny_device("here", 1e12, 1e13);
  const auto all = scenarios(made.recording, made.run, rules(), &device, nullptr).all;
  const Scenario* within = find(all, "gemm_int8_fused");
  const Scenario* apart = find(all, "gemm_int8");
  ASSERT_NE(within, nullptr);
  ASSERT_NE(apart, nullptr);
  EXPECT_NEAR(within->made.kernel_factors[0], 0.25, 1e-9);
  EXPECT_EQ(within->made.kernel_factors[1], 1);
  const double added_us = 1024.0 * 1024 * (5 + 8) / 0.75e12 * 1e6;
  EXPECT_NEAR(apart->made.kernel_factors[0], 0.25 + added_us / 215, 1e-9);
  EXPECT_GT(apart->made.call_added_ns[0], 0);
  EXPECT_EQ(apart->made.call_added_ns[1], 0);
  EXPECT_LT(total_ns(made, within->made), total_ns(made, apart->made));
  EXPECT_LT(total_ns(made, apart->made), total_ns(made, {}));
}

// A product in two kernels, the second of which adds up what the first left: its input is quantized
// once, and its result dequantized once.
TEST(Scenarios, AProductOfTwoKernelsIsQuantizedOnce) {
  TinyTrace tiny;
  tiny.step(1, 0, 2000)
      .add(formats::TraceEventKind::host_operator, "aten::mm", 10, 40)
      .add(formats::TraceEventKind::call, "cudaLaunchKernel", 12, 16, 1)
      .add(formats::TraceEventKind::call, "cudaLaunchKernel", 22, 26, 2)
      .add(formats::TraceEventKind::kernel, "sgemm", 50, 265, 1, "7")
      .add(formats::TraceEventKind::kernel, "splitKreduce", 266, 366, 2, "7");
  formats::Trace trace = tiny.build();
  for (formats::TraceEvent& event : trace.events) {
    if (event.kind != formats::TraceEventKind::host_operator) continue;
    event.detail = trace.names.intern(R"([[1024,1024],[1024,1024]] ["float","float"])");
  }
  const Prepared made = recorded(std::move(trace));
  const device::Device device = tiny_device("here", 1e12, 1e13);
  const auto all = scenarios(made.recording, made.run, rules(), &device, nullptr).all;
  const Scenario* apart = find(all, "gemm_int8");
  ASSERT_NE(apart, nullptr);
  EXPECT_GT(apart->made.kernel_factors[0], 0.25);
  EXPECT_NEAR(apart->made.kernel_factors[1], 0.25, 1e-9);
  EXPECT_EQ(apart->made.call_added_ns[1], 0);
}

TEST(Scenarios, AnotherDeviceByRoofline) {
  const Prepared made = prepared();
  const device::Device here = tiny_device("here", 1e12, 1e13);
  const device::Device there = tiny_device("there", 2e12, 5e13);
  const auto all = scenarios(made.recording, made.run, rules(), &here, &there).all;
  const Scenario* moved = find(all, "device_there");
  ASSERT_NE(moved, nullptr);
  EXPECT_NEAR(moved->made.kernel_factors[0], 0.2, 1e-9);
  EXPECT_NEAR(moved->made.kernel_factors[1], 0.5, 1e-9);
  EXPECT_LT(total_ns(made, moved->made), total_ns(made, {}));
  // 10 TFLOP/s in fp32 here, nothing there: what a product takes there is not guessed.
  device::Device without = tiny_device("without", 2e12, 5e13);
  without.dense_rates[static_cast<size_t>(device::Rate::fp32)] = {};
  const Scenarios refused = scenarios(made.recording, made.run, rules(), &here, &without);
  EXPECT_EQ(find(refused.all, "device_without"), nullptr);
  ASSERT_EQ(refused.notes.size(), 1U);
  EXPECT_NE(refused.notes[0].find("without has no fp32 rate"), std::string::npos);
  // Where the type of the product is not recorded, a half precision that both have.
  Prepared untyped = prepared();
  for (formats::TraceEvent& event : untyped.run.trace.events) event.detail = formats::kNone;
  const auto set_fp16 = [](device::Device one, double flops) {
    one.dense_rates[static_cast<size_t>(device::Rate::fp16)] = {FlopsPerSecond{flops},
                                                                Provenance::datasheet, "a test"};
    return one;
  };
  const device::Device half = set_fp16(here, 2e13);
  const device::Device twice = set_fp16(there, 4e13);
  const Scenarios by_half = scenarios(untyped.recording, untyped.run, rules(), &half, &twice);
  ASSERT_NE(find(by_half.all, "device_there"), nullptr);
  EXPECT_NEAR(find(by_half.all, "device_there")->made.kernel_factors[0], 0.5, 1e-9);
  EXPECT_EQ(scenarios(untyped.recording, untyped.run, rules(), &half, &there).notes.size(), 1U);
  const device::Device unknown;
  EXPECT_EQ(find(scenarios(made.recording, made.run, rules(), &here, &unknown).all, "device_"),
            nullptr);
}

// A graph of two products: on twice the arithmetic they take half, once their capture says that
// they are products.
TEST(Scenarios, KernelsOfGraphsHaveTheWorkOfTheirCapture) {
  using Kind = formats::TraceEventKind;
  formats::Trace run = TinyTrace()
                           .step(1, 0, 2000)
                           .add(Kind::call, "cudaGraphLaunch", 10, 20, 500)
                           .add(Kind::kernel, "first", 30, 245, 500, "7")
                           .add(Kind::kernel, "second", 246, 461, 500, "7")
                           .add(Kind::call, "cudaDeviceSynchronize", 21, 470, 900)
                           .build();
  formats::Trace capture = TinyTrace()
                               .add(Kind::host_operator, "aten::mm", 0, 10)
                               .add(Kind::call, "cudaLaunchKernel", 1, 2)
                               .add(Kind::host_operator, "aten::mm", 20, 30)
                               .add(Kind::call, "cudaLaunchKernel", 21, 22)
                               .build();
  for (formats::TraceEvent& event : capture.events) {
    if (event.kind != Kind::host_operator) continue;
    event.detail = capture.names.intern(R"([[1024,1024],[1024,1024]] ["float","float"])");
  }
  const device::Device here = tiny_device("here", 1e12, 1e13);
  const device::Device there = tiny_device("there", 1e12, 2e13);
  const auto factor = [&](formats::Trace trace) {
    const Prepared made = recorded(std::move(trace));
    const Scenarios found = scenarios(made.recording, made.run, rules(), &here, &there);
    return found.all.empty() ? 0 : found.all.back().made.kernel_factors.back();
  };
  EXPECT_DOUBLE_EQ(factor(run), 1);  // of unknown work: by the bandwidth
  ASSERT_EQ(join_capture(run, capture).joined, 2);
  EXPECT_DOUBLE_EQ(factor(std::move(run)), 0.5);
}

}  // namespace
}  // namespace headroom::ops
