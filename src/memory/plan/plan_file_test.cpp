#include "memory/plan/plan_file.h"

#include <gtest/gtest.h>

#include "memory/plan/plan_sample.h"

namespace headroom::memory {
namespace {

TEST(PlanFile, ComesBackAsItWas) {
  for (const MemoryPlan& plan :
       {sample_plan(), lending_plan(), plan_in_order(), plan_with_slot_elsewhere(), MemoryPlan{}}) {
    const auto bytes = plan_file(plan);
    ASSERT_TRUE(bytes) << bytes.error().to_string();
    const auto again = parse_plan_file(*bytes, "a.plan");
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(*again, plan);
  }
}

TEST(PlanFile, NothingWrongIsWritten) {
  MemoryPlan plan = sample_plan();
  plan.signatures[0].slots[1].offset = 2048;
  EXPECT_FALSE(plan_file(plan));
}

TEST(PlanFile, TruncatedAtEveryByte) {
  const std::string bytes = *plan_file(sample_plan());
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto plan = parse_plan_file(bytes.substr(0, length), "a.plan");
    ASSERT_FALSE(plan) << length;
    EXPECT_NE(plan.error().where.find("a.plan, byte "), std::string::npos);
    EXPECT_FALSE(plan.error().hint.empty());
  }
  EXPECT_FALSE(parse_plan_file(bytes + '\0', "a.plan"));
}

TEST(PlanFile, EveryChangedByteIsNoticed) {
  const std::string bytes = *plan_file(sample_plan());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const char change : {'\x01', '\x80', '\xff'}) {
      std::string other = bytes;
      other[at] = static_cast<char>(other[at] ^ change);
      EXPECT_FALSE(parse_plan_file(other, "a.plan")) << at;
    }
  }
}

TEST(PlanFile, OtherVersionsAreNamed) {
  std::string bytes = *plan_file(sample_plan());
  bytes[8] = 9;
  const auto plan = parse_plan_file(bytes, "a.plan");
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("version 9"), std::string::npos);
}

}  // namespace
}  // namespace headroom::memory
