#include "fit/time/pipeline_time.h"

namespace headroom::fit {

std::optional<StepTime> pipeline_time(const std::vector<StageFigures>& stages,
                                      const step::Pipeline& pipeline) {
  const StageFigures* slowest = nullptr;
  double together = 0;
  for (const StageFigures& stage : stages) {
    if (!stage.time) return std::nullopt;
    together += stage.micro_batch_seconds;
    const bool is_slower = slowest == nullptr ||
                           stage.time->step_seconds.expected > slowest->time->step_seconds.expected;
    if (is_slower) slowest = &stage;
  }
  if (slowest == nullptr) return std::nullopt;
  StepTime time = *slowest->time;
  // Of forward, gradients of inputs and of weights: the first two less the last.
  constexpr double kOfThree = 1.0 / 3;
  const bool splits = pipeline.schedule == step::PipelineSchedule::zero_bubble;
  time.pipeline_seconds = (together - slowest->micro_batch_seconds) /
                          static_cast<double>(pipeline.chunks) * (splits ? kOfThree : 1);
  const double alone = time.step_seconds.expected;
  const double stretched = (alone + time.pipeline_seconds) / alone;
  time.step_seconds.low *= stretched;
  time.step_seconds.expected *= stretched;
  time.step_seconds.high *= stretched;
  time.tokens_per_second /= stretched;
  return time;
}

}  // namespace headroom::fit
