#include "ops/fresh_memory.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace {

using memory::Category;

constexpr int64_t kLarge = 40 * kMiB;
constexpr int64_t kSmall = 20 * kMiB;  // kept, once it has been there

// Two steps of two calls; the last one's blocks are the ones that count.
step::StepTrace two_steps() {
  step::StepTrace trace;
  trace.calls.resize(4);
  const auto add = [&](int64_t bytes, Category category, uint32_t call) {
    trace.memory.alloc({.requested_bytes = bytes, .category = category}, call);
  };
  trace.phases.push_back({step::Phase::construct, 0, 0, 0});
  add(kLarge, Category::parameter, 0);
  trace.phases.push_back({step::Phase::forward, 1, 1, 0});
  add(kLarge, Category::activation, 0);
  trace.phases.push_back({step::Phase::forward, 2, 2, 2});
  add(kLarge, Category::input, 2);
  add(kLarge, Category::temporary, 2);
  add(kSmall, Category::activation, 2);
  add(kLarge, Category::logits, 3);
  add(kLarge + 1, Category::activation, 3);
  return trace;
}

TEST(FreshMemory, BlocksThatGlibcNeverKeepsAreNewInEachStep) {
  const std::vector<double> fresh = fresh_bytes_by_call(two_steps());
  const double large = static_cast<double>(kLarge);
  EXPECT_EQ(fresh, (std::vector<double>{0, 0, large, 2 * large + 1}));
}

// Of training there is no telling: what backward asks for within its operators is in no trace.
TEST(FreshMemory, ATrainingStepIsLeftAlone) {
  step::StepTrace trace = two_steps();
  trace.phases.push_back({step::Phase::backward, 2, 4, 3});
  EXPECT_EQ(fresh_bytes_by_call(trace), std::vector<double>(4));
}

TEST(FreshMemory, WhatAByteCostsIsTheMedianOfTheSizes) {
  timing::Calibration calibration;
  EXPECT_EQ(fresh_memory_of(calibration).seconds_high, 0);
  calibration.fresh_memory = {{Bytes(100), 100.0}, {Bytes(200), 600.0}, {Bytes(100), 200.0}};
  const FreshMemory found = fresh_memory_of(calibration);
  EXPECT_EQ(found.seconds_low, 0);
  EXPECT_DOUBLE_EQ(found.seconds, 2);
  EXPECT_DOUBLE_EQ(found.seconds_high, 6);
}

}  // namespace
}  // namespace headroom::ops
