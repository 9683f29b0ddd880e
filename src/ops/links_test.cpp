#include "ops/links.h"

#include <gtest/gtest.h>

#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using Kind = formats::TraceEventKind;

uint32_t find(const formats::Trace& trace, const std::string& name) {
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    if (trace.name_of(trace.events[i]) == name) return i;
  }
  return formats::kNone;
}

TEST(Links, AKernelBelongsToTheInnermostOperatorAroundItsLaunch) {
  const formats::Trace trace = TinyTrace()
                                   .step(1, 0, 100)
                                   .add(Kind::host_operator, "aten::linear", 10, 40)
                                   .launched("aten::addmm", 15, 35, "gemm", 50, 60)
                                   .add(Kind::host_operator, "aten::view", 36, 38)
                                   .build();
  const Links links = link(trace);
  const uint32_t kernel = find(trace, "gemm");
  const uint32_t addmm = find(trace, "aten::addmm");
  EXPECT_EQ(links.launch[kernel], find(trace, "cudaLaunchKernel"));
  EXPECT_EQ(links.parent[kernel], addmm);
  EXPECT_EQ(links.parent[addmm], find(trace, "aten::linear"));
  EXPECT_EQ(links.parent[find(trace, "aten::view")], find(trace, "aten::linear"));
  EXPECT_EQ(operator_of(trace, links, kernel), addmm);
  std::vector<uint32_t> chain;
  chain_of(trace, links, kernel, chain);
  ASSERT_EQ(chain.size(), 3U);
  EXPECT_EQ(trace.names.at(chain[2]), "ProfilerStep#1");
}

// A device goes on with a step after the host has ended it; without one what lies between steps is
// none of theirs. Either way they sum to the time of all.
TEST(Links, StepsSumToTheirTime) {
  TinyTrace tiny;
  tiny.step(1, 10, 100).step(2, 120, 200).step(3, 230, 300).add(Kind::host_operator, "a", 20, 30);
  const Links host = link(tiny.build());
  EXPECT_EQ(host.step_ns(0), 90'000);
  EXPECT_EQ(host.step_ns(1), 80'000);
  EXPECT_EQ(host.step_ns(2), 70'000);
  EXPECT_EQ(host.passed_ns(host.end_ns()), 240'000);
  const Links device = link(tiny.launched("b", 30, 40, "k", 50, 60).build());
  EXPECT_EQ(device.step_ns(0), 110'000);
  EXPECT_EQ(device.step_ns(1), 110'000);
  EXPECT_EQ(device.step_ns(2), 70'000);
  EXPECT_EQ(device.passed_ns(device.end_ns()), 290'000);
}

TEST(Links, AnOperatorThatEndsWhereAnotherBeginsDoesNotHoldIt) {
  const formats::Trace trace = TinyTrace()
                                   .add(Kind::host_operator, "a", 0, 10)
                                   .add(Kind::host_operator, "b", 10, 20)
                                   .build();
  EXPECT_EQ(link(trace).parent[find(trace, "b")], formats::kNone);
}

// Ranges have any name; which of them are steps their reader says.
TEST(Links, AnAnnotationIsNoStep) {
  TinyTrace tiny;
  tiny.add(Kind::host_operator, "a", 0, 10).add(Kind::annotation, "ProfilerStep#1", 0, 20);
  EXPECT_FALSE(link(tiny.build()).has_steps);
  EXPECT_TRUE(link(tiny.step(2, 0, 30).build()).has_steps);
}

TEST(Links, OtherThreadsDoNotEnclose) {
  const formats::Trace trace = TinyTrace()
                                   .add(Kind::host_operator, "a", 0, 100)
                                   .add(Kind::host_operator, "b", 10, 20, 0, "2")
                                   .build();
  EXPECT_EQ(link(trace).parent[find(trace, "b")], formats::kNone);
}

TEST(Links, AKernelBelongsToTheStepThatLaunchedIt) {
  const formats::Trace trace = TinyTrace()
                                   .launched("early", 0, 5, "k0", 5, 120)
                                   .step(1, 100, 200)
                                   .launched("first", 110, 120, "k1", 190, 230)
                                   .step(2, 200, 300)
                                   .launched("second", 210, 220, "k2", 230, 350)
                                   .launched("late", 310, 320, "k3", 350, 360)
                                   .build();
  const Links links = link(trace);
  EXPECT_TRUE(links.has_steps);
  ASSERT_EQ(links.steps.size(), 2U);
  EXPECT_EQ(links.step[find(trace, "k0")], kOutside);
  EXPECT_EQ(links.step[find(trace, "k1")], 0);
  EXPECT_EQ(links.step[find(trace, "k2")], 1);
  EXPECT_EQ(links.step[find(trace, "k3")], kOutside);
}

TEST(Links, WithoutStepsAllIsOne) {
  const formats::Trace trace = TinyTrace()
                                   .launched("a", 0, 5, "k", 5, 120)
                                   .add(Kind::kernel, "lost", 130, 140, 99, "7")
                                   .build();
  const Links links = link(trace);
  EXPECT_FALSE(links.has_steps);
  ASSERT_EQ(links.steps.size(), 1U);
  EXPECT_EQ(links.start_ns(), 0);
  EXPECT_EQ(links.end_ns(), 140'000);
  EXPECT_EQ(links.step[find(trace, "lost")], 0);
  EXPECT_EQ(links.launch[find(trace, "lost")], formats::kNone);
}

TEST(Links, TheIdOfTheOperatorHelpsWhereTheCallIsMissing) {
  TinyTrace tiny;
  tiny.add(Kind::host_operator, "op", 0, 5).add(Kind::kernel, "k", 5, 9, 77, "7");
  formats::Trace trace = tiny.build();
  trace.events[0].external_id = 12;
  trace.events[1].external_id = 12;
  EXPECT_EQ(link(trace).parent[1], 0U);
  // As old profilers write it where there is no operator.
  trace.events[0].external_id = 77;
  trace.events[1].external_id = 77;
  EXPECT_EQ(link(trace).parent[1], formats::kNone);
}

TEST(Links, NothingGivesNothing) {
  const Links links = link(formats::Trace());
  EXPECT_TRUE(links.steps.empty());
  EXPECT_EQ(links.end_ns(), 0);
}

}  // namespace
}  // namespace headroom::ops
