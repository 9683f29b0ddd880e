// Which attention kernels a step says were written before Hopper: its time holds them to a ceiling.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "step/tiny_llama.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

TEST(AttentionCalls, SayWhetherTheyHaveHoppersInstructions) {
  using op::AttentionBackend;
  for (const auto& [backend, before] : {std::pair{AttentionBackend::flash, true},
                                        {AttentionBackend::efficient, true},
                                        {AttentionBackend::cudnn, false}}) {
    TrainOptions options;
    options.environment.attention = backend;
    options.environment.compute_capability = 90;
    options.steps = 1;
    const StepTrace trace = trace_training(tiny_llama({.key_heads = 4}), options).value();
    int64_t calls = 0;
    for (const OperatorCall& call : trace.calls) {
      if (call.kind != op::OpKind::sdpa) continue;
      EXPECT_EQ(call.before_hopper, before) << static_cast<int>(backend);
      ++calls;
    }
    EXPECT_EQ(calls, 2 * 2) << static_cast<int>(backend);  // layers, both ways
  }
}

}  // namespace
}  // namespace headroom::step
