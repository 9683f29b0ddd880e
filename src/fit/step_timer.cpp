#include "fit/step_timer.h"

#include <utility>

#include "fit/network.h"
#include "timing/step_time.h"

namespace headroom::fit {

namespace {

// Products under autocast, and of FSDP's mixed precision, run in the half type.
op::DType computed_type(const FitQuestion& question) {
  switch (question.mixed_precision) {
    case MixedPrecision::bf16:
      return op::DType::bf16;
    case MixedPrecision::fp16:
      return op::DType::f16;
    case MixedPrecision::none:
      break;
  }
  return dtype_of(question.dtype);
}

Result<timing::StepShape> shape_of(const Scenario& scenario) {
  const FitQuestion& question = scenario.question;
  timing::StepShape shape;
  shape.type = computed_type(question);
  shape.tokens = question.batch;
  shape.sequence = 0;  // a picture's follows from what attention does
  if (reads_seq(scenario)) {
    shape.sequence = question.seq;
    const auto tokens = checked_multiply(question.batch, question.seq);
    if (!tokens)
      return Error{ErrorCode::usage, "is more tokens than can be counted", "--batch", ""};
    shape.tokens = *tokens;
  }
  if (!scenario.traced) HEADROOM_TRY(timing::read_heads(scenario.model->view(), shape));
  return shape;
}

}  // namespace

Result<StepTimer> StepTimer::make() {
  HEADROOM_ASSIGN(timing::TimingModel model, timing::TimingModel::load());
  return StepTimer(std::move(model));
}

Result<StepTime> StepTimer::time_of(const Scenario& scenario, const step::StepTrace& trace) const {
  const FitQuestion& question = scenario.question;
  HEADROOM_ASSIGN(const timing::StepShape shape, shape_of(scenario));
  HEADROOM_ASSIGN(const timing::Cluster cluster, cluster_of(question, devices_of(question)));
  const timing::StepTimeQuestion asked{*scenario.device, shape, cluster, division_of(question)};
  HEADROOM_ASSIGN(const timing::StepTime whole, timing::time_of(trace, asked, model_));
  StepTime time;
  time.step_seconds = {whole.seconds_low, whole.seconds, whole.seconds_high};
  if (reads_seq(scenario)) {
    const double tokens = static_cast<double>(shape.tokens) *
                          static_cast<double>(question.grad_accum) *
                          static_cast<double>(data_ranks_of(question));
    time.tokens_per_second = tokens / whole.seconds;
  }
  time.compute_seconds = whole.compute_seconds;
  time.communication_seconds = whole.communication_seconds;
  time.exposed_seconds = whole.exposed_seconds;
  time.kernels = whole.launches;
  time.provenance = whole.provenance;
  time.basis = whole.basis;
  return time;
}

}  // namespace headroom::fit
