#include "ops/added_part.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/ops.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using Spans = std::vector<std::array<int64_t, 2>>;

const OperatorRules& rules() {
  static const OperatorRules kRules = OperatorRules::load("").value();
  return kRules;
}

// Operators of 2 us with 1 us before each, and one within each.
RecordedRun run_of_names(const std::vector<std::string>& names) {
  TinyTrace tiny;
  const auto end = 3 * static_cast<int64_t>(names.size());
  tiny.step(0, 0, end);
  int64_t at = 1;
  for (const std::string& name : names) {
    tiny.add(TinyTrace::Kind::host_operator, name, at, at + 2);
    tiny.add(TinyTrace::Kind::host_operator, "aten::within", at, at + 1);
    at += 3;
  }
  return run_of(tiny.build(), rules()).value();
}

TEST(AddedPart, IsALayerAndTheOneBeforeIt) {
  const auto part = added_part(run_of_names({"embed", "norm0", "mm1", "head"}),
                               run_of_names({"embed", "norm0", "mm1", "norm2", "mm3", "head"}));
  ASSERT_TRUE(part);
  EXPECT_EQ(part->operators, 2);
  EXPECT_EQ(part->spans_ns, (Spans{{3'000, 9'000}, {9'000, 15'000}}));
}

// The first layer makes the mask, which the second one has from it.
TEST(AddedPart, StandsAloneWhereTheLayerBeforeHasMore) {
  const auto part = added_part(run_of_names({"embed", "norm", "mask", "mm", "head"}),
                               run_of_names({"embed", "norm", "mask", "mm", "norm", "mm", "head"}));
  ASSERT_TRUE(part);
  EXPECT_EQ(part->operators, 2);
  EXPECT_EQ(part->spans_ns, (Spans{{12'000, 18'000}}));
}

TEST(AddedPart, IsNotThereWhereTheRunsDifferOtherwise) {
  const RecordedRun run = run_of_names({"a", "b", "c"});
  EXPECT_FALSE(added_part(run, run));
  EXPECT_FALSE(added_part(run, run_of_names({"a", "x", "b", "y", "c"})));
  EXPECT_FALSE(added_part(run, run_of_names({"a"})));
}

TEST(AddedPart, MayEndTheRun) {
  const auto part = added_part(run_of_names({"embed", "norm", "mm"}),
                               run_of_names({"embed", "norm", "mm", "norm", "mm"}));
  ASSERT_TRUE(part);
  EXPECT_EQ(part->spans_ns, (Spans{{3'000, 9'000}, {9'000, 15'000}}));
}

TEST(AddedPart, IsNotThereWhereADeviceDoesTheWork) {
  const auto run_with = [](int64_t layers) {
    TinyTrace tiny;
    tiny.step(0, 0, 100);
    for (int64_t i = 0; i < layers; ++i) {
      tiny.launched("aten::mm", 10 * i, 10 * i + 5, "gemm", 10 * i + 6, 10 * i + 9);
    }
    return run_of(tiny.build(), rules()).value();
  };
  EXPECT_FALSE(added_part(run_with(2), run_with(3)));
}

TEST(AddedPart, ItsSpansAreStepsOfTheirOwn) {
  const RecordedRun more =
      run_of_names({"embed", "aten::mm", "aten::gelu", "aten::mm", "aten::gelu", "head"});
  const auto part = added_part(run_of_names({"embed", "aten::mm", "aten::gelu", "head"}), more);
  ASSERT_TRUE(part);
  const auto steps = with_steps(more, part->spans_ns, rules());
  ASSERT_TRUE(steps) << steps.error().to_string();
  const OpsAnswer answer = ops::answer(*steps, rules());
  ASSERT_EQ(answer.steps.size(), 2U);
  EXPECT_NEAR(answer.wall_time.total_ms, 0.012, 1e-9);
  double busy = 0;
  for (const GroupShare& group : answer.kernel_time.groups) busy += group.ms;
  EXPECT_NEAR(busy, 0.008, 1e-9);
}

}  // namespace
}  // namespace headroom::ops
