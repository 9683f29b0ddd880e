#include "fit/step_timer.h"

#include <utility>

#include "fit/network.h"
#include "fit/shared_steps.h"
#include "timing/calibration.h"
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

Result<StepTimer> StepTimer::make(const std::string& calibration) {
  HEADROOM_ASSIGN(timing::TimingModel model, timing::TimingModel::load());
  StepTimer timer(std::move(model));
  if (calibration.empty()) return timer;
  HEADROOM_ASSIGN(const auto measured, timing::find_calibration(calibration));
  if (!measured) return timer;
  HEADROOM_ASSIGN(auto catalogue, device::DeviceCatalogue::load());
  HEADROOM_TRY(timing::adopt(*measured, catalogue, timer.model_));
  timer.measured_device_ = measured->device;
  return timer;
}

namespace {

void add(double times, const timing::StepTime& more, timing::StepTime& time) {
  time.seconds += times * more.seconds;
  time.seconds_low += times * more.seconds_low;
  time.seconds_high += times * more.seconds_high;
  time.compute_seconds += times * more.compute_seconds;
  time.communication_seconds += times * more.communication_seconds;
  time.exposed_seconds += times * more.exposed_seconds;
  time.launches += static_cast<int64_t>(times * static_cast<double>(more.launches));
}

int64_t not_simulated(const Scenario& scenario) {
  return scenario.question.grad_accum - scenario.train.accumulation;
}

// A step of fewer micro-batches by one: the difference is what one between makes.
Result<step::StepTrace> shorter_step(const Scenario& scenario) {
  HEADROOM_ASSIGN(const auto shared, scenario.steps->of(scenario));
  step::TrainOptions train = scenario.train;
  --train.accumulation;
  return step::trace_training(*shared->graph, train);
}

}  // namespace

Result<double> over_all_micro_batches(
    const Scenario& scenario, const step::StepTrace& trace,
    const std::function<Result<double>(const step::StepTrace&)>& figure) {
  HEADROOM_ASSIGN(const double simulated, figure(trace));
  const auto missing = static_cast<double>(not_simulated(scenario));
  if (missing <= 0) return simulated;
  HEADROOM_ASSIGN(const step::StepTrace shorter, shorter_step(scenario));
  HEADROOM_ASSIGN(const double less, figure(shorter));
  return simulated + missing * (simulated - less);
}

Result<StepTime> StepTimer::time_of(const Scenario& scenario, const step::StepTrace& trace) const {
  const FitQuestion& question = scenario.question;
  HEADROOM_ASSIGN(const timing::StepShape shape, shape_of(scenario));
  HEADROOM_ASSIGN(const timing::Cluster cluster, cluster_of(question, devices_of(question)));
  const timing::StepTimeQuestion asked{*scenario.device, shape, cluster, division_of(question)};
  HEADROOM_ASSIGN(timing::StepTime whole, timing::time_of(trace, asked, model_));
  if (const auto missing = static_cast<double>(not_simulated(scenario)); missing > 0) {
    HEADROOM_ASSIGN(const step::StepTrace shorter, shorter_step(scenario));
    HEADROOM_ASSIGN(const timing::StepTime less, timing::time_of(shorter, asked, model_));
    const timing::StepTime simulated = whole;
    add(missing, simulated, whole);
    add(-missing, less, whole);
  }
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
