#include "fit/time/pipeline_time.h"

#include "fit/time/mirrored_time.h"

namespace headroom::fit {

namespace {

double waiting_seconds(const std::vector<StageFigures>& stages, const StageFigures& slowest,
                       const step::Pipeline& pipeline) {
  if (step::is_mirrored(pipeline.schedule))
    return mirrored_waiting_seconds(stages, slowest, pipeline);
  double others = -slowest.micro_batch_seconds;
  for (const StageFigures& stage : stages) others += stage.micro_batch_seconds;
  // Of forward, gradients of inputs and of weights: the first two less the last.
  constexpr double kOfThree = 1.0 / 3;
  return others / static_cast<double>(pipeline.chunks) *
         (step::splits_backward(pipeline.schedule) ? kOfThree : 1);
}

}  // namespace

std::optional<StepTime> pipeline_time(const std::vector<StageFigures>& stages,
                                      const step::Pipeline& pipeline) {
  const StageFigures* slowest = nullptr;
  for (const StageFigures& stage : stages) {
    if (!stage.time) return std::nullopt;
    const bool is_slower = slowest == nullptr ||
                           stage.time->step_seconds.expected > slowest->time->step_seconds.expected;
    if (is_slower) slowest = &stage;
  }
  if (slowest == nullptr) return std::nullopt;
  StepTime time = *slowest->time;
  time.pipeline_seconds = waiting_seconds(stages, *slowest, pipeline);
  const double alone = time.step_seconds.expected;
  const double stretched = (alone + time.pipeline_seconds) / alone;
  time.step_seconds.low *= stretched;
  time.step_seconds.expected *= stretched;
  time.step_seconds.high *= stretched;
  time.tokens_per_second /= stretched;
  return time;
}

}  // namespace headroom::fit
