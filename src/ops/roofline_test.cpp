#include "ops/roofline.h"

#include <gtest/gtest.h>

#include "device/overrides.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

const OperatorRules& rules() {
  static const OperatorRules kRules = *OperatorRules::load("");
  return kRules;
}

// 1 TB/s, 100 TFLOP/s in bf16, 10 in fp32.
device::Device tiny_device() {
  device::Device device;
  device.name = "tiny";
  device.bandwidth = {BytesPerSecond{1e12}, Provenance::datasheet, "a test"};
  const auto set = [&](device::Rate rate, double flops) {
    device.dense_rates[static_cast<size_t>(rate)] = {FlopsPerSecond{flops}, Provenance::datasheet,
                                                     "a test"};
  };
  set(device::Rate::bf16, 1e14);
  set(device::Rate::fp32, 1e13);
  return device;
}

RecordedRun run_with(const char* gemm_types) {
  TinyTrace tiny;
  tiny.step(1, 0, 1000).step(2, 1000, 2000);
  for (const int64_t begin : {0, 1000}) {
    tiny.launched("aten::mm", begin + 10, begin + 20, "gemm", begin + 30, begin + 130)
        .launched("aten::add", begin + 140, begin + 150, "add", begin + 160, begin + 170)
        .launched("my::scan", begin + 180, begin + 190, "scan", begin + 200, begin + 250);
  }
  formats::Trace trace = tiny.build();
  for (formats::TraceEvent& event : trace.events) {
    if (trace.name_of(event) == "aten::mm") {
      event.detail = trace.names.intern(std::string("[[1024,1024],[1024,1024]] ") + gemm_types);
    } else if (trace.name_of(event) == "aten::add") {
      event.detail = trace.names.intern(R"([[1000,1000],[1000,1000]] ["float","float"])");
    }
  }
  return *run_of(std::move(trace), rules());
}

TEST(Roofline, TimeAboveTheFloor) {
  const auto found =
      roofline(run_with(R"(["c10::BFloat16","c10::BFloat16"])"), rules(), tiny_device());
  ASSERT_TRUE(found);
  ASSERT_EQ(found->rows.size(), 2U);
  const RooflineRow& gemm = found->rows[0];
  EXPECT_EQ(gemm.name, "aten::mm");
  EXPECT_EQ(gemm.rate, "bf16");
  EXPECT_TRUE(gemm.is_compute_bound);
  EXPECT_NEAR(gemm.count, 1, 1e-12);
  EXPECT_NEAR(gemm.kernel_ms, 0.1, 1e-12);
  EXPECT_NEAR(gemm.floor_ms, 2.0 * 1024 * 1024 * 1024 / 1e14 * 1e3, 1e-9);  // 21 us
  EXPECT_NEAR(gemm.above_ms, gemm.kernel_ms - gemm.floor_ms, 1e-12);
  EXPECT_NEAR(gemm.flops_per_second, 2.0 * 1024 * 1024 * 1024 / 100e-6, 1);
  // 12 MB at 1 TB/s are 12 us; it took 10, out of a cache: nothing to win.
  const RooflineRow& add = found->rows[1];
  EXPECT_FALSE(add.is_compute_bound);
  EXPECT_NEAR(add.floor_ms, 0.012, 1e-12);
  EXPECT_EQ(add.above_ms, 0);
  EXPECT_NEAR(add.achieved_pct, 120, 1e-9);
  EXPECT_NEAR(found->covered_pct, 100.0 * 110 / 160, 1e-9);
  EXPECT_NEAR(found->kernel_ms, 0.11, 1e-12);
}

// A convolution launches its product, and then turns the result over: it is a product still.
TEST(Roofline, AnOperatorIsOfTheGroupThatMostOfItsTimeIs) {
  TinyTrace tiny;
  tiny.step(1, 0, 1000)
      .launched("aten::cudnn_convolution", 10, 30, "cutlass_fprop", 40, 140)
      .add(formats::TraceEventKind::call, "cudaLaunchKernel", 20, 22, 77)
      .add(formats::TraceEventKind::kernel, "nhwcToNchwKernel", 140, 150, 77, "7");
  formats::Trace trace = tiny.build();
  for (formats::TraceEvent& event : trace.events) {
    if (trace.name_of(event) != "aten::cudnn_convolution") continue;
    event.detail =
        trace.names.intern(R"([[8,3,64,64],[64,3,3,3],[],[],[],[],[],[],[]] )"
                           R"(["c10::BFloat16","c10::BFloat16","","","","","","",""] )"
                           R"(["","","[1,1]","[1,1]","[1,1]","1","False","False","True"])");
  }
  const auto found = roofline(*run_of(std::move(trace), rules()), rules(), tiny_device());
  ASSERT_TRUE(found);
  ASSERT_EQ(found->rows.size(), 1U);
  EXPECT_NEAR(found->rows[0].kernel_ms, 0.11, 1e-12);
  EXPECT_EQ(found->rows[0].group, "gemm");
}

TEST(Roofline, LimitsThatTheUserGaveAreNoDatasheets) {
  device::Device device = tiny_device();
  const RecordedRun run = run_with(R"(["float","float"])");
  EXPECT_EQ(roofline(run, rules(), device)->provenance, Provenance::datasheet);
  device.dense_rates[static_cast<size_t>(device::Rate::fp32)].provenance = Provenance::extrapolated;
  EXPECT_EQ(roofline(run, rules(), device)->provenance, Provenance::extrapolated);
}

TEST(Roofline, LimitsThatTheUserGaveAreNamed) {
  device::Device device = tiny_device();
  const RecordedRun run = run_with(R"(["float","float"])");
  EXPECT_TRUE(roofline(run, rules(), device)->given.empty());
  EXPECT_EQ(roofline(run, rules(), device)->not_given, Provenance::datasheet);
  ASSERT_TRUE(device::apply_overrides(device, "bandwidth=2TB/s"));
  const auto found = roofline(run, rules(), device);
  EXPECT_EQ(found->given, std::vector<std::string>{"bandwidth"});
  EXPECT_EQ(found->not_given, Provenance::datasheet);
  ASSERT_TRUE(device::apply_overrides(device, "bf16=90TFLOPS,fp32=9TFLOPS"));
  EXPECT_EQ(roofline(run, rules(), device)->given.size(), 3U);
  EXPECT_FALSE(roofline(run, rules(), device)->not_given);
}

// A run on a CPU is held against a processor's limits and no others.
TEST(Roofline, OperatorsOfACpuHaveItsLimits) {
  TinyTrace tiny;
  tiny.step(1, 0, 1000).add(TinyTrace::Kind::host_operator, "aten::mm", 10, 910);
  formats::Trace trace = tiny.build();
  for (formats::TraceEvent& event : trace.events) {
    if (trace.name_of(event) != "aten::mm") continue;
    event.detail = trace.names.intern(R"([[1024,1024],[1024,1024]] ["float","float"])");
  }
  const RecordedRun run = *run_of(std::move(trace), rules());
  device::Device device = tiny_device();
  EXPECT_FALSE(roofline(run, rules(), device));  // a GPU
  device.vendor = device::Vendor::cpu;
  const auto found = roofline(run, rules(), device);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->rows.size(), 1U);
  EXPECT_NEAR(found->rows[0].kernel_ms, 0.9, 1e-9);
  EXPECT_NEAR(found->rows[0].floor_ms, 2.0 * 1024 * 1024 * 1024 / 1e13 * 1e3, 1e-9);
}

TEST(Roofline, TheRateIsThatOfTheType) {
  const auto found = roofline(run_with(R"(["float","float"])"), rules(), tiny_device());
  ASSERT_TRUE(found);
  for (const RooflineRow& row : found->rows) {
    if (row.name == "aten::mm") {
      EXPECT_EQ(row.rate, "fp32");
    }
  }
}

// A rate that the device's data does not hold: no floor is made up.
TEST(Roofline, NoFloorWithoutALimit) {
  const auto found = roofline(run_with(R"(["c10::Half","c10::Half"])"), rules(), tiny_device());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rows.size(), 1U);
  device::Device unknown = tiny_device();
  unknown.bandwidth = {};
  EXPECT_FALSE(roofline(run_with(R"(["float","float"])"), rules(), unknown));
}

}  // namespace
}  // namespace headroom::ops
