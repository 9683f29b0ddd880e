#include "fit/time/pipeline_time.h"

#include <gtest/gtest.h>

namespace headroom::fit {
namespace {

// Of so many micro-batches.
StageFigures stage(double micro_batch, int64_t micro_batches) {
  const double seconds = micro_batch * static_cast<double>(micro_batches);
  StageFigures figures;
  figures.micro_batch_seconds = micro_batch;
  figures.time.emplace();
  figures.time->step_seconds = {0.9 * seconds, seconds, 1.2 * seconds};
  figures.time->tokens_per_second = 100 / seconds;
  return figures;
}

// 8 micro-batches on 4 stages: (p - 1) / m of the step more.
TEST(PipelineTime, StagesThatAreAlikeWaitForAsManyMicroBatchesAsStagesAreLeft) {
  const std::vector<StageFigures> stages(4, stage(0.5, 8));
  const auto time = pipeline_time(stages, {});
  ASSERT_TRUE(time);
  EXPECT_DOUBLE_EQ(time->pipeline_seconds, 3 * 0.5);
  EXPECT_DOUBLE_EQ(time->step_seconds.expected, 11 * 0.5);
  EXPECT_DOUBLE_EQ(time->step_seconds.low, 0.9 * 11 * 0.5);
  EXPECT_DOUBLE_EQ(time->tokens_per_second, 100 / 5.5);
  EXPECT_DOUBLE_EQ(pipeline_time(stages, {.chunks = 2})->pipeline_seconds, 0.75);
}

// (p - 1) times (forward + gradients of inputs - gradients of weights), each a third of 0.5.
TEST(PipelineTime, AZeroBubbleWaitsForOnePartOfThree) {
  const std::vector<StageFigures> stages(4, stage(0.5, 8));
  step::Pipeline pipeline;
  pipeline.schedule = step::PipelineSchedule::zero_bubble;
  EXPECT_DOUBLE_EQ(pipeline_time(stages, pipeline)->pipeline_seconds, 0.5);
  pipeline.chunks = 2;
  EXPECT_DOUBLE_EQ(pipeline_time(stages, pipeline)->pipeline_seconds, 0.25);
}

TEST(PipelineTime, TheSlowestStageSetsThePace) {
  const auto time = pipeline_time({stage(1, 4), stage(3, 4), stage(2, 4)}, {});
  ASSERT_TRUE(time);
  EXPECT_DOUBLE_EQ(time->step_seconds.expected, 12 + 1 + 2);
}

TEST(PipelineTime, AStageWhoseTimeIsNotKnownLeavesTheWholeUnknown) {
  EXPECT_FALSE(pipeline_time({stage(1, 4), StageFigures()}, {}));
  EXPECT_FALSE(pipeline_time({}, {}));
}

}  // namespace
}  // namespace headroom::fit
