#include "ops/capture.h"

#include <gtest/gtest.h>

#include "ops/kernel_name.h"
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

// A capture of `operators`, each a launch of a kernel of the same number of the run, with shapes.
TinyTrace& captured(TinyTrace& trace, int64_t at, const std::vector<std::string>& operators,
                    const std::string& call = "cudaLaunchKernel") {
  trace.add(Kind::call, "cudaStreamBeginCapture", at, at + 1);
  int64_t time = at + 2;
  for (const std::string& name : operators) {
    trace.add(Kind::host_operator, name, time, time + 4);
    trace.add(Kind::call, call, time + 1, time + 2);
    time += 5;
  }
  return trace.add(Kind::call, "cudaStreamEndCapture", time, time + 1);
}

formats::Trace two_kernels() {
  return TinyTrace()
      .add(Kind::call, "cudaGraphLaunch", 1, 9, 500)
      .add(Kind::kernel, "first", 10, 30, 500, "7")
      .add(Kind::kernel, "second", 30, 50, 500, "7")
      .build();
}

// A warm-up that ran, and captures of other graphs, are passed over.
TEST(Capture, EachGraphTakesTheCaptureThatItMatches) {
  TinyTrace trace;
  trace.launched("warm::up", 0, 10, "first", 5, 9).launched("warm::up", 20, 30, "second", 25, 29);
  captured(trace, 1000, {"three::a", "three::b", "three::c"});
  captured(trace, 2000, {"two::a", "two::b"});
  formats::Trace run = two_kernels();
  const CaptureJoin joined = join_capture(run, trace.build());
  EXPECT_EQ(joined.captured, 5);
  EXPECT_EQ(joined.joined, 2);
  EXPECT_FALSE(joined.has_unsure_shapes);
  ASSERT_EQ(run.captured.size(), 2U);
  EXPECT_EQ(run.name_of(run.events[run.captured[0].operation]), "two::a");
}

TEST(Capture, KindsMustAgreeWhereThereAreNoNames) {
  TinyTrace trace;
  captured(trace, 1000, {"copy::a", "copy::b"}, "cudaMemcpyAsync");
  formats::Trace run = two_kernels();
  EXPECT_EQ(join_capture(run, trace.build()).joined, 0);
}

// A run does not tell the fills of its graphs, as with CUDA 13.0.
TEST(Capture, FillsThatTheRunDoesNotTellArePassedOver) {
  TinyTrace trace;
  trace.add(Kind::call, "cudaStreamBeginCapture", 1000, 1001)
      .add(Kind::host_operator, "two::a", 1002, 1006)
      .add(Kind::call, "cudaMemsetAsync", 1003, 1004)
      .add(Kind::call, "cudaLaunchKernel", 1004, 1005)
      .add(Kind::host_operator, "two::b", 1007, 1011)
      .add(Kind::call, "cudaLaunchKernel", 1008, 1009)
      .add(Kind::call, "cudaStreamEndCapture", 1012, 1013);
  formats::Trace run = two_kernels();
  EXPECT_EQ(join_capture(run, trace.build()).joined, 2);
  ASSERT_EQ(run.captured.size(), 2U);
  EXPECT_EQ(run.name_of(run.events[run.captured[1].operation]), "two::b");
  formats::Trace with_fill = TinyTrace()
                                 .add(Kind::call, "cudaGraphLaunch", 1, 9, 500)
                                 .add(Kind::kernel, "first", 10, 30, 500, "7")
                                 .add(Kind::fill, "Memset (Device)", 30, 40, 500, "7")
                                 .build();
  EXPECT_EQ(join_capture(with_fill, trace.build()).joined, 0);
  formats::Trace other_fill = TinyTrace()
                                  .add(Kind::call, "cudaGraphLaunch", 1, 9, 500)
                                  .add(Kind::kernel, "first", 10, 30, 500, "7")
                                  .add(Kind::kernel, "second", 30, 50, 500, "7")
                                  .add(Kind::fill, "Memset (Device)", 50, 60, 500, "7")
                                  .build();
  EXPECT_EQ(join_capture(other_fill, trace.build()).joined, 2);  // of three
}

// Captures of several batches look alike: operators are known where they are the same, shapes not.
TEST(Capture, SeveralCapturesOfTheSameKernels) {
  const auto of = [](const char* first_shapes, const char* second_shapes, const char* other) {
    TinyTrace trace;
    captured(trace, 1000, {"my::op", "my::end"});
    captured(trace, 2000, {"my::op", other});
    formats::Trace made = trace.build();
    bool is_first = true;
    for (formats::TraceEvent& event : made.events) {
      if (made.name_of(event) != "my::op") continue;
      event.detail = made.names.intern(is_first ? first_shapes : second_shapes);
      is_first = false;
    }
    return made;
  };
  formats::Trace run = two_kernels();
  const CaptureJoin joined = join_capture(run, of("[[1,8]]", "[[2,8]]", "my::end"));
  EXPECT_EQ(joined.joined, 2);
  EXPECT_TRUE(joined.has_unsure_shapes);
  EXPECT_EQ(run.events[run.captured[0].operation].detail, formats::kNone);
  formats::Trace same = two_kernels();
  EXPECT_FALSE(join_capture(same, of("[[1,8]]", "[[1,8]]", "my::end")).has_unsure_shapes);
  EXPECT_NE(same.events[same.captured[0].operation].detail, formats::kNone);
  formats::Trace others = two_kernels();
  EXPECT_EQ(join_capture(others, of("[[1,8]]", "[[1,8]]", "your::end")).joined, 0);
}

// One name that two models share makes no capture of it.
TEST(Capture, MostKernelsMustMatch) {
  formats::Trace run = TinyTrace()
                           .add(Kind::call, "hipGraphLaunch", 1, 9, 500)
                           .add(Kind::kernel, "foo", 10, 20, 500, "7")
                           .add(Kind::kernel, "one", 20, 30, 500, "7")
                           .add(Kind::kernel, "two", 30, 40, 500, "7")
                           .add(Kind::kernel, "three", 40, 50, 500, "7")
                           .build();
  EXPECT_EQ(join_capture(run, capture(true)).joined, 0);
}

// The ends of what a time may be.
TEST(Capture, TimesFarApart) {
  formats::Trace run = two_kernels();
  for (formats::TraceEvent& event : run.events) event.start_ns -= formats::kMaxTraceNs;
  formats::Trace far = capture(false);
  far.events.front().start_ns = -formats::kMaxTraceNs;
  far.events.front().duration_ns = 2 * formats::kMaxTraceNs;
  EXPECT_EQ(join_capture(run, far).joined, 2);
  for (const formats::TraceEvent& event : run.events) {
    EXPECT_GE(event.start_ns, -formats::kMaxTraceNs);
  }
}

}  // namespace
}  // namespace headroom::ops
