#include "ops/host_program.h"

#include <gtest/gtest.h>

#include "device/catalogue.h"
#include "ops/horizon.h"
#include "ops/ops.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using Kind = formats::TraceEventKind;

// Two steps of a layer on a CPU: a product within a wrapper, and two neighbours of one size.
formats::Trace cpu_trace() {
  TinyTrace tiny;
  for (int64_t step = 0; step < 2; ++step) {
    const int64_t at = 1000 * step;
    tiny.step(step, at, at + 1000)
        .add(Kind::host_operator, "aten::linear", at + 100, at + 500)
        .add(Kind::host_operator, "aten::addmm", at + 120, at + 490)
        .add(Kind::host_operator, "aten::mul", at + 500, at + 600)
        .add(Kind::host_operator, "aten::add", at + 620, at + 700);
  }
  formats::Trace trace = tiny.build();
  const uint32_t shapes = trace.names.intern(R"([[64,64],[64,64]] ["float","float"])");
  for (formats::TraceEvent& event : trace.events) {
    const std::string_view name = trace.name_of(event);
    if (name == "aten::mul" || name == "aten::add") event.detail = shapes;
  }
  return trace;
}

const OperatorRules& rules() {
  static const OperatorRules kRules = *OperatorRules::load("");
  return kRules;
}

TEST(HostProgram, TakesAsLongAsTheRun) {
  const RecordedRun run = *run_of(cpu_trace(), rules());
  const WallTime wall = wall_time(run.trace, run.work, run.links, rules());
  const auto recording = record_host(run, wall, rules());
  ASSERT_TRUE(recording);
  EXPECT_TRUE(recording->is_host);
  EXPECT_DOUBLE_EQ(recording->measured_ns, 2e6);
  ASSERT_EQ(recording->program.kernels.size(), 6U);  // linear, mul and add, twice
  EXPECT_EQ(recording->program.kernels[0].duration_ns, 400'000);
  EXPECT_EQ(run.trace.name_of(run.trace.events[recording->events[0]]), "aten::addmm");
  EXPECT_NEAR(timing::simulate(recording->program).total_ns, 2e6, 10);
}

// By this machine's rates, where they are given: linear layers of 400 of 1000 us, four times
// faster.
TEST(HostProgram, Int8ByTheRatesOfTheMachine) {
  formats::Trace trace = cpu_trace();
  const uint32_t shapes =
      trace.names.intern(R"([[512],[512,512],[512,512]] ["float","float","float"])");
  for (formats::TraceEvent& event : trace.events) {
    if (trace.name_of(event) == "aten::addmm") event.detail = shapes;
  }
  const RecordedRun run = *run_of(std::move(trace), rules());
  const auto device =
      device::DeviceCatalogue::built_in().find("cpu,fp32=1TFLOPS,int8=4TFLOPS,bandwidth=8TB/s");
  ASSERT_TRUE(device) << device.error().to_string();
  const auto find = [](const OpsAnswer& answered) {
    for (const HorizonChange& change : answered.horizon) {
      EXPECT_NE(change.change, "gemm_int8");
      if (change.change == "gemm_int8_fused") return change.speedup;
    }
    return 0.0;
  };
  EXPECT_EQ(find(answer(run, rules())), 0);
  EXPECT_NEAR(find(answer(run, rules(), {.device = &*device})), 1000.0 / (1000 - 400 * 0.75), 1e-3);
}

TEST(HostProgram, ChangesAreSums) {
  const OpsAnswer answered = answer(*run_of(cpu_trace(), rules()), rules());
  ASSERT_TRUE(answered.replay);
  EXPECT_NEAR(answered.replay->error_pct, 0, 0.01);
  bool has_gemm = false;
  for (const HorizonChange& change : answered.horizon) {
    EXPECT_NE(change.change, "host_2x");
    EXPECT_NE(change.change, "cuda_graph");
    // A product of 400 of 1000 us in no time.
    if (change.change == "gemm_instant") {
      EXPECT_NEAR(change.speedup, 1 / 0.6, 0.001);
    }
    // Two neighbours of 180 us, of whose six passes over the data one link takes two away.
    if (change.change == "fuse_elementwise") {
      EXPECT_NEAR(change.speedup, 1 / 0.94, 0.001);
    }
    has_gemm |= change.change == "gemm_instant";
  }
  EXPECT_TRUE(has_gemm);
}

// A collective of 400 of 1000 us hidden: what bounds the run and what hiding gives are one thing.
TEST(HostProgram, CommunicationCanBeHidden) {
  TinyTrace tiny;
  tiny.step(0, 0, 1000)
      .add(Kind::host_operator, "aten::mm", 0, 550)
      .add(Kind::annotation, "gloo:all_reduce", 550, 950, 0, "2");
  const OpsAnswer answered = answer(*run_of(tiny.build(), rules()), rules());
  const auto hidden =
      std::ranges::find(answered.horizon, "communication_hidden", &HorizonChange::change);
  ASSERT_NE(hidden, answered.horizon.end());
  EXPECT_NEAR(hidden->speedup, 1 / 0.6, 1e-3);
}

// A compiled region holds a whole model: what it calls changes, each by its own group, however much
// of the time one of them has.
TEST(HostProgram, ARegionIsItsParts) {
  for (const int64_t product : {400, 520, 850}) {
    TinyTrace tiny;
    tiny.step(0, 0, 1000)
        .add(Kind::host_operator, "Torch-Compiled Region: 0/0", 0, 1000)
        .add(Kind::host_operator, "aten::addmm", 20, 20 + product)
        .add(Kind::host_operator, "aten::_softmax", 20 + product, 920);
    const OpsAnswer answered = answer(*run_of(tiny.build(), rules()), rules());
    const auto gemm = std::ranges::find(answered.horizon, "gemm_instant", &HorizonChange::change);
    ASSERT_NE(gemm, answered.horizon.end());
    EXPECT_NEAR(gemm->speedup, 1000.0 / (1000 - static_cast<double>(product)), 1e-3);
    const auto softmax = std::ranges::find(answered.horizon, "softmax_2x", &HorizonChange::change);
    ASSERT_NE(softmax, answered.horizon.end());
    EXPECT_NEAR(softmax->speedup, 1000.0 / (1000 - (900 - static_cast<double>(product)) / 2), 1e-3);
  }
}

TEST(HostProgram, IsNotForADevice) {
  const formats::Trace trace = TinyTrace().launched("a", 0, 5, "k", 5, 120).build();
  const RecordedRun run = *run_of(trace, rules());
  EXPECT_FALSE(record_host(run, wall_time(run.trace, run.work, run.links, rules()), rules()));
}

}  // namespace
}  // namespace headroom::ops
