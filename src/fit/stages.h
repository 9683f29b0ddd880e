// The stages of a pipeline, of which the one that needs most decides: Megatron-LM's, or those of
// torch.distributed.pipelining.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "fit/answer.h"
#include "fit/prediction.h"
#include "fit/question.h"
#include "fit/scenario/scenario.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

// 1 where there is no pipeline.
[[nodiscard]] int64_t stage_count(const FitQuestion& question);
// The same question about another stage. REQUIRES: 0 <= stage < stage_count(question).
[[nodiscard]] FitQuestion at_stage(FitQuestion question, int64_t stage);
// About the whole model. REQUIRES: the pipeline is not Megatron-LM's.
[[nodiscard]] FitQuestion without_stages(FitQuestion question);

// The stage that the scenario looks at, of what was predicted of it.
StageFigures stage_figures(const Scenario& scenario, const StepTimer& timer,
                           const DetailedPrediction& detail);

// What of a pipeline's stages is there before they are predicted, and what is to be kept of them.
struct StagesBeside {
  std::vector<StageFigures> known;        // are not predicted again
  DetailedPrediction* fullest = nullptr;  // to be filled with what was predicted of fullest_stage()
};
// Each stage of the pipeline; `any` is of one of them. REQUIRES: there is a pipeline; what is to be
// kept is not known.
Result<std::vector<StageFigures>> stages_of(const Scenario& any, const StepTimer& timer,
                                            const StagesBeside& beside = {});

// The stage that shows most of its device. REQUIRES: stages are there.
[[nodiscard]] int64_t fullest_stage(const std::vector<StageFigures>& stages);
// Of all stages together. REQUIRES: there are some.
[[nodiscard]] Verdict worst_verdict(const std::vector<StageFigures>& stages);

// A variation of a scenario, and of a pipeline's stages the fullest.
struct Varied {
  Scenario scenario;
  Prediction prediction;
};
// For searches: each stage of one of PyTorch's pipelines is predicted; of one of Megatron-LM's the
// stage that the question looks at alone, as of what has no stages.
Result<Varied> vary_fullest(const Scenario& scenario, const FitQuestion& question,
                            Figures figures = Figures::always);

}  // namespace headroom::fit
