#include "pack/step.h"

#include <gtest/gtest.h>

namespace headroom::pack {
namespace {

// Two layers whose activations live until backward, and a scratch each.
step::StepTrace trace() {
  step::StepTrace made;
  made.modules = {"", "layers.0", "layers.1"};
  for (uint32_t module = 1; module <= 2; ++module) {
    made.calls.push_back({.kind = op::OpKind{}, .phase = step::Phase::forward, .module = module});
  }
  made.calls.push_back({.kind = op::OpKind{}, .phase = step::Phase::backward, .module = 2});
  memory::BufferInfo info;
  const auto alloc = [&](int64_t bytes, uint32_t call) {
    info.requested_bytes = bytes;
    return made.memory.alloc(info, call);
  };
  std::vector<uint32_t> saved;
  for (uint32_t call = 0; call < 2; ++call) {
    const uint32_t scratch = alloc(3 * kMiB, call);
    saved.push_back(alloc(7 * kMiB, call));
    made.memory.free(scratch, call);
  }
  alloc(0, 2);
  for (const uint32_t buffer : saved) made.memory.free(buffer, 2);
  return made;
}

TEST(PackStep, IsPlannedWithoutARecording) {
  const auto answer = answer_step({.file = "step"}, trace());
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->requests.size(), 4U);  // a request of nothing is none
  EXPECT_EQ(answer->lower_bound, Bytes(17 * kMiB));
  EXPECT_EQ(answer->plan.size, Bytes(17 * kMiB));
  ASSERT_TRUE(answer->recording && answer->loss);
  EXPECT_TRUE(answer->recording->is_simulated);
  // What the simulator held is what the table says of the default settings.
  for (const AllocatorFigures& figures : answer->allocators) {
    if (figures.name != "torch") continue;
    EXPECT_EQ(figures.peak_reserved, answer->loss->reserved);
  }
  EXPECT_EQ(answer->loss->homeless_blocks, 0U);
  const std::string site =
      answer->recording->sites
          .site(answer->recording->sites.site_of(answer->recording->blocks[3].stack))
          .words();
  EXPECT_EQ(site.find("forward, layers.1: "), 0U) << site;
}

TEST(PackStep, AnEmptyStepIsAnAnswer) {
  const auto answer = answer_step({.file = "step"}, step::StepTrace{});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->plan.size, Bytes(0));
  EXPECT_FALSE(answer->loss);
}

}  // namespace
}  // namespace headroom::pack
