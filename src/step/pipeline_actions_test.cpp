#include "step/pipeline_actions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace headroom::step {
namespace {

std::string words(const std::vector<PipelineAction>& actions) {
  std::string all;
  for (const PipelineAction& action : actions) {
    const char* kind = action.kind == PipelineActionKind::gather   ? "gather"
                       : action.kind == PipelineActionKind::let_go ? "let go"
                       : action.kind == PipelineActionKind::reduce ? "reduce"
                       : action.pass.is_forward                    ? "F"
                                                                   : "B";
    all += (all.empty() ? "" : ", ") + std::string(kind) + std::to_string(action.chunk);
  }
  return all;
}

TEST(PipelineActions, OfOneChunkThereAreOnlyPasses) {
  EXPECT_EQ(words(actions_of({2, 0}, 2)), "F0, F0, B0, B0");
}

TEST(PipelineActions, TwoChunksAreGatheredOnceAndReducedBehindTheirLastPass) {
  EXPECT_EQ(words(actions_of({2, 1, 2}, 2)),
            "gather0, gather1, F0, F0, F1, B1, F1, B1, reduce1, let go1, B0, B0, reduce0, let go0");
}

TEST(PipelineActions, APassFindsItsChunkGatheredAndNoMoreThanThreeAre) {
  for (const int64_t chunks : {2, 3, 4, 6}) {
    for (const auto schedule :
         {PipelineSchedule::one_forward_one_backward, PipelineSchedule::zero_bubble}) {
      Pipeline pipeline{4, 1, chunks};
      pipeline.schedule = schedule;
      std::vector<int> whole(static_cast<size_t>(chunks));
      std::vector<int> reduced(static_cast<size_t>(chunks));
      for (const PipelineAction& action : actions_of(pipeline, 8)) {
        const bool gathers = action.kind == PipelineActionKind::gather;
        const bool lets_go = action.kind == PipelineActionKind::let_go;
        EXPECT_EQ(whole[action.chunk], gathers ? 0 : 1) << words({action});
        whole[action.chunk] += gathers ? 1 : lets_go ? -1 : 0;
        reduced[action.chunk] += action.kind == PipelineActionKind::reduce ? 1 : 0;
        EXPECT_LE(std::ranges::count(whole, 1), 3);
      }
      EXPECT_EQ(std::ranges::count(whole, 0), chunks);
      EXPECT_EQ(std::ranges::count(reduced, 1), chunks);
    }
  }
}

}  // namespace
}  // namespace headroom::step
