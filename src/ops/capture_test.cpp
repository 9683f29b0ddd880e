#include "ops/capture.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using Kind = formats::TraceEventKind;

TEST(Capture, StemsOfNames) {
  EXPECT_EQ(kernel_stem("void at::native::vectorized<4, at::Foo>(int)"), "vectorized");
  EXPECT_EQ(kernel_stem("_ZN2at6native10vectorizedILi4EEEvi"), "vectorized");
  EXPECT_EQ(kernel_stem("void at::native::(anonymous namespace)::scan<float>(int)"), "scan");
  EXPECT_EQ(kernel_stem("_ZL4scanPfi"), "scan");
  EXPECT_EQ(kernel_stem("Cijk_Alik_Bljk.kd"), "Cijk_Alik_Bljk");
  EXPECT_EQ(kernel_stem("triton_poi_fused_add_0"), "triton_poi_fused_add_0");
  EXPECT_EQ(kernel_stem("_Z"), "_Z");
  EXPECT_EQ(kernel_stem("_Z99999x"), "_Z99999x");
  EXPECT_EQ(kernel_stem(""), "");
}

// A step that launches a graph of three kernels.
formats::Trace run_of_graph() {
  return TinyTrace()
      .step(1, 0, 100)
      .add(Kind::host_operator, "decode", 0, 10)
      .add(Kind::call, "hipGraphLaunch", 1, 9, 500)
      .add(Kind::kernel, "void lib::foo<float>(int)", 10, 30, 500, "7")
      .add(Kind::kernel, "extra", 30, 35, 500, "7")
      .add(Kind::kernel, "void lib::bar(int)", 35, 50, 500, "7")
      .build();
}

// Its capture: foo by aten::mm within a module's operator, bar by aten::silu.
formats::Trace capture(bool has_names) {
  formats::Trace trace = TinyTrace()
                             .add(Kind::host_operator, "my::layer", 1000, 1050)
                             .add(Kind::host_operator, "aten::mm", 1005, 1020)
                             .add(Kind::call, "hipLaunchKernel", 1006, 1008)
                             .add(Kind::host_operator, "aten::silu", 1060, 1080)
                             .add(Kind::call, "hipLaunchKernel", 1061, 1062)
                             .build();
  if (!has_names) return trace;
  size_t next = 0;
  for (formats::TraceEvent& event : trace.events) {
    if (event.kind != Kind::call) continue;
    event.detail = trace.names.intern(next++ == 0 ? "_ZN3lib3fooIfEEvi" : "_ZN3lib3barEi");
  }
  return trace;
}

const OperatorTime* find(const OpsAnswer& answer, std::string_view name) {
  for (const OperatorTime& row : answer.operators) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

TEST(Capture, KernelsOfAGraphGetTheOperatorsOfTheirCapture) {
  formats::Trace trace = run_of_graph();
  const CaptureJoin joined = join_capture(trace, capture(true));
  EXPECT_EQ(joined.graph_kernels, 3);
  EXPECT_EQ(joined.joined, 2);
  EXPECT_EQ(joined.captured, 2);
  for (size_t i = 1; i < trace.events.size(); ++i) {
    EXPECT_LE(trace.events[i - 1].start_ns, trace.events[i].start_ns);
  }
  const auto rules = OperatorRules::load("");
  const auto plain = answer(run_of_graph(), *rules);
  const auto made = answer(std::move(trace), *rules);
  ASSERT_TRUE(plain && made);
  EXPECT_DOUBLE_EQ(plain->coverage.unlinked_pct_of_kernel_time, 100);
  EXPECT_DOUBLE_EQ(made->coverage.unlinked_pct_of_kernel_time, 100 * 5.0 / 40);
  ASSERT_NE(find(*made, "aten::mm"), nullptr);
  EXPECT_DOUBLE_EQ(find(*made, "aten::mm")->kernel_ms, 0.020);
  EXPECT_EQ(find(*made, "aten::mm")->group, "gemm");
  ASSERT_NE(find(*made, "aten::silu"), nullptr);
  EXPECT_EQ(find(*made, "aten::silu")->group, "activation");
  // Nothing else changes: the captured operators took no time of this run.
  EXPECT_DOUBLE_EQ(made->wall_time.total_ms, plain->wall_time.total_ms);
  EXPECT_DOUBLE_EQ(made->kernel_time.total_ms, plain->kernel_time.total_ms);
  EXPECT_DOUBLE_EQ(made->nongemm_bench.total_ms, plain->nongemm_bench.total_ms);
}

TEST(Capture, WithoutNamesTheNumberOfKernelsMustAgree) {
  formats::Trace trace = run_of_graph();
  EXPECT_EQ(join_capture(trace, capture(false)).joined, 0);
  EXPECT_TRUE(trace.captured.empty());
  formats::Trace two = TinyTrace()
                           .add(Kind::call, "cudaGraphLaunch", 1, 9, 500)
                           .add(Kind::kernel, "first", 10, 30, 500, "7")
                           .add(Kind::kernel, "second", 30, 50, 500, "7")
                           .build();
  EXPECT_EQ(join_capture(two, capture(false)).joined, 2);
}

}  // namespace
}  // namespace headroom::ops
