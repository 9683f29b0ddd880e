#include "ops/host_fusion.h"

#include <gtest/gtest.h>

#include <utility>

#include "ops/ops.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using formats::TraceEventKind;

struct Operator {
  const char* name;
  const char* shapes;
  int64_t us;
};

constexpr const char* kOne = R"([[64,256]] ["float"])";
constexpr const char* kTwo = R"([[64,256],[64,256]] ["float","float"])";
constexpr const char* kMean = R"([[64,1]] ["float"])";

const OperatorRules& built_in() {
  static const OperatorRules kRules = *OperatorRules::load("");
  return kRules;
}

OpsAnswer answered(const std::vector<Operator>& operators,
                   const OperatorRules& rules = built_in()) {
  TinyTrace tiny;
  int64_t at = 0;
  for (const Operator& one : operators) at += one.us;
  tiny.step(1, 0, at);
  at = 0;
  for (const Operator& one : operators) {
    tiny.add(TraceEventKind::host_operator, one.name, at, at + one.us);
    at += one.us;
  }
  formats::Trace trace = tiny.build();
  size_t next = 0;
  for (formats::TraceEvent& event : trace.events) {
    if (event.kind != TraceEventKind::host_operator) continue;
    const std::string_view shapes = operators[next++].shapes;
    if (!shapes.empty()) event.detail = trace.names.intern(shapes);
  }
  return answer(*run_of(std::move(trace), rules), rules, {});
}

const HorizonChange* fusion_of(const OpsAnswer& answer) {
  for (const HorizonChange& change : answer.horizon) {
    if (change.change == "fuse_elementwise") return &change;
  }
  return nullptr;
}

// Two additions of three passes each, 300 us: 100 us a pass. One link takes two of the six away.
TEST(HostFusion, ALinkTakesAWriteAndARead) {
  const OpsAnswer answer = answered({{"aten::add", kTwo, 300}, {"aten::mul", kTwo, 300}});
  const HorizonChange* fused = fusion_of(answer);
  ASSERT_NE(fused, nullptr);
  EXPECT_NEAR(fused->speedup, 600.0 / 400, 1e-6);
  EXPECT_NEAR(fused->speedup_low, 600.0 / 500, 1e-6);
  EXPECT_NEAR(fused->speedup_high, 600.0 / 200, 1e-6);
}

// A tanh of 1000 us moves two passes, so that it computes for 800 us: those stay.
TEST(HostFusion, ComputingStays) {
  const OpsAnswer answer = answered({{"aten::add", kTwo, 300}, {"aten::tanh", kOne, 1000}});
  const HorizonChange* fused = fusion_of(answer);
  ASSERT_NE(fused, nullptr);
  EXPECT_NEAR(fused->speedup, 1300.0 / (3 * 100 + 800), 1e-6);
}

// A normalization as it is exported: eleven passes and what is smaller become a read and a write.
TEST(HostFusion, WhatIsSmallerBetweenLoopsGoes) {
  const OpsAnswer answer = answered({{"onnx::Sub", kTwo, 300},
                                     {"onnx::Pow", kOne, 200},
                                     {"onnx::ReduceMean", kOne, 100},
                                     {"onnx::Sqrt", kMean, 50},
                                     {"onnx::Div", kOne, 200},
                                     {"onnx::Mul", kOne, 200}});
  const HorizonChange* fused = fusion_of(answer);
  ASSERT_NE(fused, nullptr);
  EXPECT_NEAR(fused->speedup, 1050.0 / 200, 1e-6);
}

TEST(HostFusion, ViewsDoNotPartAChainAndOtherWorkDoes) {
  // Of PyTorch they go, of ONNX Runtime they are nodes.
  for (const auto& [view, left] :
       {std::pair("aten::view", 200.0), std::pair("onnx::Reshape", 210.0)}) {
    const OpsAnswer answer =
        answered({{"aten::add", kOne, 200}, {view, "", 10}, {"aten::mul", kOne, 200}});
    const HorizonChange* fused = fusion_of(answer);
    ASSERT_NE(fused, nullptr) << view;
    EXPECT_NEAR(fused->speedup, 410 / left, 1e-6) << view;
  }
  EXPECT_EQ(fusion_of(answered(
                {{"aten::add", kOne, 200}, {"aten::mm", "", 10}, {"aten::mul", kOne, 200}})),
            nullptr);
  EXPECT_EQ(fusion_of(answered({{"aten::add", kOne, 200}, {"aten::mul", kMean, 200}})), nullptr);
}

// ONNX Runtime's Transpose writes all anew: the loops on both sides of it are none.
TEST(HostFusion, CopiesOfOnnxRuntimePartAChain) {
  for (const char* copy : {"onnx::Transpose", "onnx::Slice", "onnx::Expand"}) {
    const std::vector<Operator> operators{
        {"onnx::Add", kOne, 200}, {copy, kOne, 150}, {"onnx::Mul", kOne, 200}};
    EXPECT_EQ(fusion_of(answered(operators)), nullptr) << copy;
  }
  EXPECT_NE(
      fusion_of(answered(
          {{"aten::add", kOne, 200}, {"aten::transpose", kOne, 10}, {"aten::mul", kOne, 200}})),
      nullptr);
}

// Half as large as the loops beside it, and no reduction's: 90 us of work that no fusion removes.
TEST(HostFusion, WhatIsSmallerAndNoReductionsPartsAChain) {
  constexpr const char* kHalf = R"([[32,256]] ["float"])";
  const auto between = [&](const char* first, const char* shapes) {
    return answered({{first, kOne, 200}, {"aten::mul", shapes, 90}, {"aten::add", kOne, 200}});
  };
  EXPECT_EQ(fusion_of(between("aten::add", kHalf)), nullptr);
  EXPECT_EQ(fusion_of(between("aten::add", kMean)), nullptr);   // nothing was reduced
  EXPECT_EQ(fusion_of(between("aten::mean", kHalf)), nullptr);  // to one a row
  const OpsAnswer answer = between("aten::mean", kMean);
  ASSERT_NE(fusion_of(answer), nullptr);
  // 400 us for three passes; a read and a write are left.
  EXPECT_NEAR(fusion_of(answer)->speedup, 490.0 / (2 * 400.0 / 3), 1e-6);
}

// What a loop is made of is said by the rules, and a user's file adds to them.
TEST(HostFusion, OperatorsOfAFileOfRulesJoinChains) {
  const std::vector<Operator> operators{
      {"aten::add", kOne, 200}, {"mine::see", kOne, 10}, {"mine::scale_", kOne, 200}};
  EXPECT_EQ(fusion_of(answered(operators)), nullptr);
  const auto json = text::parse_json(
      R"({"schema": "headroom.operator_rules/1",
          "operators": [{"group": "elementwise", "names": ["mine::scale*"]}],
          "loops": {"arithmetic": ["mine::scale"], "views": ["mine::see"]}})",
      "mine.json");
  ASSERT_TRUE(json);
  const auto rules = OperatorRules::read(text::JsonView(*json, "mine.json"), &built_in());
  ASSERT_TRUE(rules) << rules.error().to_string();
  EXPECT_NE(fusion_of(answered(operators, *rules)), nullptr);
}

TEST(HostFusion, NothingWithoutShapesOrArithmetic) {
  EXPECT_EQ(fusion_of(answered({{"aten::add", "", 200}, {"aten::mul", "", 200}})), nullptr);
  EXPECT_EQ(fusion_of(answered({{"aten::tanh", kOne, 200}, {"aten::gelu", kOne, 200}})), nullptr);
}

}  // namespace
}  // namespace headroom::ops
