#include "memory/plan/servable_plan.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "memory/plan/plan_file.h"
#include "memory/plan/plan_sample.h"

namespace headroom::memory {
namespace {

Result<MemoryPlan> from_file(const std::string& bytes) {
  const std::string path = testing::TempDir() + "headroom_servable.plan";
  std::ofstream(path, std::ios::binary) << bytes;
  Result<MemoryPlan> plan = read_servable_plan(path);
  std::remove(path.c_str());
  return plan;
}

std::string refusal(const std::string& bytes) {
  const auto plan = from_file(bytes);
  return plan ? "" : plan.error().to_string();
}

TEST(ServablePlan, WhatCanBeServedIsTakenAsItIs) {
  const auto plan = from_file(*plan_file(sample_plan()));
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(*plan, sample_plan());
}

TEST(ServablePlan, WhatCannotBeIsRefusedWithAReason) {
  EXPECT_NE(refusal("this is no plan\n").find("headroom_servable.plan"), std::string::npos);
  EXPECT_NE(refusal(plan_file(sample_plan())->substr(0, 90)), "");
  MemoryPlan empty;
  empty.alignment = 512;
  EXPECT_NE(refusal(*plan_file(empty)).find("the plan has no slots"), std::string::npos);
  MemoryPlan fine;
  fine.alignment = 1;
  EXPECT_NE(refusal(*plan_file(fine)).find("no multiple of 512"), std::string::npos);
}

}  // namespace
}  // namespace headroom::memory
