#include "fit/time/pipeline_time.h"

#include <gtest/gtest.h>

#include <array>

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

step::Pipeline mirrored(step::PipelineSchedule schedule, int64_t stages, int64_t micro_batches) {
  step::Pipeline pipeline;
  pipeline.schedule = schedule;
  pipeline.stages = stages;
  pipeline.chunks = 2;
  pipeline.micro_batches = micro_batches;
  return pipeline;
}

constexpr std::array kMirrored{step::PipelineSchedule::zero_bubble_v,
                               step::PipelineSchedule::dual_pipe_v};

// Of six parts that take a second each: the last stage begins behind as many passes forward as
// there are stages before it, and no stage waits again (2401.10241, table 5: no bubble).
TEST(PipelineTime, MirroredStagesThatAreAlikeWaitForTheFirstPassesAlone) {
  for (const step::PipelineSchedule schedule : kMirrored) {
    for (const int64_t stages : {2, 4, 8}) {
      for (const int64_t micro_batches : {2 * stages, 8 * stages}) {
        const std::vector<StageFigures> alike(static_cast<size_t>(stages), stage(6, micro_batches));
        const auto time = pipeline_time(alike, mirrored(schedule, stages, micro_batches));
        EXPECT_DOUBLE_EQ(time->pipeline_seconds, static_cast<double>(stages - 1));
      }
    }
  }
}

// With as few micro-batches as stages there is waiting, less than where chunks lie apart.
TEST(PipelineTime, AMirroredPipelineOfFewMicroBatchesWaits) {
  const std::vector<StageFigures> alike(4, stage(6, 4));
  const auto time = pipeline_time(alike, mirrored(step::PipelineSchedule::zero_bubble_v, 4, 4));
  EXPECT_GT(time->pipeline_seconds, 3);
  EXPECT_LT(time->pipeline_seconds, pipeline_time(alike, {.chunks = 2})->pipeline_seconds);
}

// A stage that takes twice as long is never idle but before its first pass and behind its last.
TEST(PipelineTime, TheSlowestMirroredStageSetsThePace) {
  for (const step::PipelineSchedule schedule : kMirrored) {
    std::vector<StageFigures> stages(4, stage(6, 16));
    stages[2] = stage(12, 16);
    const auto time = pipeline_time(stages, mirrored(schedule, 4, 16));
    EXPECT_GE(time->step_seconds.expected, 16 * 12);
    EXPECT_LT(time->step_seconds.expected, 1.15 * 16 * 12);
  }
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
