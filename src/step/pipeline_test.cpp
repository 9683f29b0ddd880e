#include "step/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace headroom::step {
namespace {

// "F0" a pass forward of chunk 0, "B1" one backward of chunk 1.
std::string words(const std::vector<PipelinePass>& passes) {
  std::string all;
  for (const PipelinePass& pass : passes) {
    if (!all.empty()) all += ' ';
    all += pass.is_forward                     ? 'F'
           : pass.part == BackwardPart::whole  ? 'B'
           : pass.part == BackwardPart::inputs ? 'I'
                                               : 'W';
    all += std::to_string(pass.chunk);
  }
  return all;
}

TEST(Pipeline, OneChunkRunsOneForwardOneBackwardBehindItsWarmUp) {
  EXPECT_EQ(words(passes_of({1, 0}, 2)), "F0 B0 F0 B0");
  EXPECT_EQ(words(passes_of({4, 2}, 3)), "F0 F0 B0 F0 B0 B0");
  EXPECT_EQ(words(passes_of({4, 0}, 2)), "F0 F0 B0 B0");  // fewer than the warm-up
}

// The table in forward_backward_pipelining_with_interleaving: stages of 2, 4 micro-batches.
TEST(Pipeline, ChunksTakeTurnsByGroupsOfStages) {
  EXPECT_EQ(words(passes_of({2, 1, 2}, 4)), "F0 F0 F1 B1 F1 B1 F0 B0 F0 B0 F1 B1 F1 B1 B0 B0");
}

TEST(Pipeline, GPipeRunsAllForwardFirst) {
  Pipeline pipeline{4, 2};
  pipeline.schedule = PipelineSchedule::gpipe;
  EXPECT_EQ(words(passes_of(pipeline, 3)), "F0 F0 F0 B0 B0 B0");
  EXPECT_EQ(most_in_flight(pipeline, 3), 3);
  EXPECT_EQ(representative_micro_batches(pipeline, 64, 4), 64);
}

// Figure 3 of arXiv 2401.10241: the first stage has its weights' gradients at once, the last one as
// many passes later as there are stages before it.
TEST(Pipeline, ZeroBubbleHasGradientsOfWeightsLater) {
  Pipeline pipeline{3, 0};
  pipeline.schedule = PipelineSchedule::zero_bubble;
  EXPECT_EQ(words(passes_of(pipeline, 3)), "F0 F0 F0 I0 W0 I0 W0 I0 W0");
  pipeline.stage = 2;
  EXPECT_EQ(words(passes_of(pipeline, 3)), "F0 I0 F0 I0 F0 I0 W0 W0 W0");
}

TEST(Pipeline, ASplitPassBackwardHoldsAMicroBatchUntilItsWeightsPart) {
  for (int64_t stage = 0; stage < 4; ++stage) {
    for (int64_t chunks = 1; chunks <= 3; ++chunks) {
      for (int64_t rounds = 1; rounds <= 4; ++rounds) {
        Pipeline pipeline{4, stage, chunks};
        pipeline.schedule = PipelineSchedule::zero_bubble;
        pipeline.engine = PipelineEngine::torch;
        int64_t waiting = 0;
        int64_t most = 0;
        std::vector<int64_t> inputs(static_cast<size_t>(chunks));
        std::vector<int64_t> weights(static_cast<size_t>(chunks));
        for (const PipelinePass& pass : passes_of(pipeline, 4 * rounds)) {
          const auto chunk = static_cast<size_t>(pass.chunk);
          if (pass.part == BackwardPart::inputs) ++inputs[chunk];
          if (pass.part == BackwardPart::weights) ++weights[chunk];
          ASSERT_LE(weights[chunk], inputs[chunk]);
          waiting += pass.is_forward ? 1 : pass.part == BackwardPart::weights ? -1 : 0;
          most = std::max(most, waiting);
        }
        EXPECT_EQ(waiting, 0);
        EXPECT_EQ(std::ranges::count(weights, 4 * rounds), chunks);
        EXPECT_EQ(most, most_in_flight(pipeline, 4 * rounds)) << stage << chunks << rounds;
      }
    }
  }
}

TEST(Pipeline, EachChunkRunsBothWaysOncePerMicroBatchAndNeverBackwardFirst) {
  for (int64_t stages = 1; stages <= 5; ++stages) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      for (int64_t chunks = 1; chunks <= (stages > 1 ? 4 : 1); ++chunks) {
        for (int64_t groups = 1; groups <= 4; ++groups) {
          const Pipeline pipeline{stages, stage, chunks};
          const int64_t micro_batches = groups * stages;
          std::vector<int64_t> forward(static_cast<size_t>(chunks));
          std::vector<int64_t> backward(static_cast<size_t>(chunks));
          int64_t most = 0;
          int64_t waiting = 0;
          for (const PipelinePass& pass : passes_of(pipeline, micro_batches)) {
            const auto chunk = static_cast<size_t>(pass.chunk);
            ++(pass.is_forward ? forward : backward)[chunk];
            ASSERT_LE(backward[chunk], forward[chunk]) << words(passes_of(pipeline, micro_batches));
            waiting += pass.is_forward ? 1 : -1;
            most = std::max(most, waiting);
          }
          EXPECT_EQ(std::ranges::count(forward, micro_batches), chunks);
          EXPECT_EQ(std::ranges::count(backward, micro_batches), chunks);
          EXPECT_EQ(most, most_in_flight(pipeline, micro_batches));
        }
      }
    }
  }
}

// By chunk, how many wait at each moment: all that a longer step has, its stand-in has.
TEST(Pipeline, AFewMicroBatchesStandForMany) {
  const auto states = [](const Pipeline& pipeline, int64_t micro_batches) {
    std::vector<std::vector<int64_t>> seen;
    std::vector<int64_t> waiting(static_cast<size_t>(pipeline.chunks));
    for (const PipelinePass& pass : passes_of(pipeline, micro_batches)) {
      waiting[static_cast<size_t>(pass.chunk)] += pass.is_forward ? 1 : -1;
      seen.push_back(waiting);
    }
    std::ranges::sort(seen);
    seen.erase(std::ranges::unique(seen).begin(), seen.end());
    return seen;
  };
  for (int64_t stage = 0; stage < 4; ++stage) {
    for (int64_t chunks = 1; chunks <= 5; ++chunks) {
      const Pipeline pipeline{4, stage, chunks};
      const int64_t few = representative_micro_batches(pipeline, 64, 4);
      EXPECT_LE(few, 12);
      EXPECT_EQ(states(pipeline, few), states(pipeline, 64)) << stage << " " << chunks;
    }
  }
}

}  // namespace
}  // namespace headroom::step
