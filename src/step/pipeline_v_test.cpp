#include "step/pipeline_v.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace headroom::step {
namespace {

constexpr std::array kSchedules{PipelineSchedule::zero_bubble_v, PipelineSchedule::dual_pipe_v};

Pipeline mirrored(PipelineSchedule schedule, int64_t stages, int64_t stage) {
  Pipeline pipeline{stages, stage, 2};
  pipeline.schedule = schedule;
  pipeline.engine = PipelineEngine::torch;
  return pipeline;
}

// By chunk: how often each kind of pass was.
struct Counts {
  std::array<int64_t, 2> forward{}, inputs{}, weights{};
};

// Each micro-batch goes through each chunk forward, then back for inputs, then for weights.
TEST(MirroredPasses, HaveEachPartOfEachMicroBatchInOrder) {
  for (const PipelineSchedule schedule : kSchedules) {
    for (const int64_t stages : {2, 3, 4, 8}) {
      for (int64_t stage = 0; stage < stages; ++stage) {
        for (const int64_t micro_batches : {2 * stages, 2 * stages + 1, 5 * stages}) {
          Counts counts;
          for (const PipelinePass& pass :
               passes_of(mirrored(schedule, stages, stage), micro_batches)) {
            const auto chunk = static_cast<size_t>(pass.chunk);
            const bool is_back = !pass.is_forward;
            counts.forward[chunk] += pass.is_forward;
            counts.inputs[chunk] += is_back && pass.part != BackwardPart::weights;
            counts.weights[chunk] += is_back && pass.part != BackwardPart::inputs;
            ASSERT_LE(counts.inputs[chunk], counts.forward[chunk]);
            ASSERT_LE(counts.weights[chunk], counts.inputs[chunk]);
          }
          const std::array<int64_t, 2> all{micro_batches, micro_batches};
          EXPECT_EQ(counts.forward, all);
          EXPECT_EQ(counts.inputs, all);
          EXPECT_EQ(counts.weights, all);
        }
      }
    }
  }
}

// ZB-V was made to need what 1F1B does: no stage has more than `stages` micro-batches, of both
// chunks, at a time, and every stage as many; DualPipeV has half of one more.
TEST(MirroredPasses, EveryStageHoldsAsMany) {
  for (const int64_t stages : {2, 4, 8}) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      for (const int64_t micro_batches : {2 * stages, 8 * stages}) {
        const auto most = [&](PipelineSchedule schedule) {
          return most_in_flight(mirrored(schedule, stages, stage), micro_batches);
        };
        EXPECT_EQ(most(PipelineSchedule::zero_bubble_v), 2 * stages);
        EXPECT_EQ(most(PipelineSchedule::dual_pipe_v), 2 * stages + 1);
      }
    }
  }
}

// A few stand for many.
TEST(MirroredPasses, RepresentativeOnesHoldTheMost) {
  for (const PipelineSchedule schedule : kSchedules) {
    const Pipeline pipeline = mirrored(schedule, 4, 1);
    const int64_t few = representative_micro_batches(pipeline, 1000, 3);
    EXPECT_LT(few, 20);
    EXPECT_EQ(most_in_flight(pipeline, few), most_in_flight(pipeline, 1000));
  }
}

// What is not there is left out of an order that is made of more.
TEST(MirroredPasses, ZeroBubbleRunsFewMicroBatches) {
  const std::vector<PipelinePass> passes =
      passes_of(mirrored(PipelineSchedule::zero_bubble_v, 4, 0), 2);
  EXPECT_EQ(std::ranges::count(passes, true, &PipelinePass::is_forward), 2 * 2);
  EXPECT_EQ(passes.size(), 3 * 2 * 2U);
}

TEST(MirroredPasses, TheLastStageHandsToItself) {
  const Pipeline last = mirrored(PipelineSchedule::zero_bubble_v, 4, 3);
  EXPECT_TRUE(last.hands_to_itself(0));
  EXPECT_FALSE(last.hands_to_itself(1));
  EXPECT_FALSE(mirrored(PipelineSchedule::zero_bubble_v, 4, 2).hands_to_itself(0));
  EXPECT_FALSE(Pipeline({4, 3, 2}).hands_to_itself(0));
}

}  // namespace
}  // namespace headroom::step
