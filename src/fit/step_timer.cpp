#include "fit/step_timer.h"

#include <algorithm>
#include <cmath>
#include <optional>
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

// As one rank of Megatron-LM's sees them: its part of a sequence, and of the heads.
timing::StepShape megatron_shape(const Scenario& scenario) {
  const model::MegatronStage& stage = scenario.question.megatron->stage;
  timing::StepShape shape;
  shape.type = computed_type(scenario.question);
  shape.sequence = stage.sequence / stage.rank.context;
  shape.tokens = stage.micro_batch * shape.sequence;
  shape.heads = stage.model.heads / stage.rank.tensor;
  shape.kv_heads = stage.model.kv_heads / stage.rank.tensor;
  return shape;
}

// Of a step, on all devices; nothing where a sequence is no tokens.
std::optional<double> tokens_of(const Scenario& scenario) {
  const FitQuestion& question = scenario.question;
  if (!reads_seq(scenario)) return std::nullopt;
  if (scenario.traced) {  // a function that takes neither says not what its inputs are
    const model::TracedGraph& trace = scenario.traced->trace;
    if (!trace.batch || !trace.sequence) return std::nullopt;
  }
  const int64_t batches =
      question.megatron ? question.megatron->batches() : data_ranks_of(question);
  const int64_t decoded = question.megatron ? question.megatron->stage.decoder_sequence : 0;
  return static_cast<double>(question.batch) * static_cast<double>(question.seq + decoded) *
         static_cast<double>(question.grad_accum) * static_cast<double>(batches);
}

Result<timing::StepShape> shape_of(const Scenario& scenario) {
  if (scenario.question.megatron) return megatron_shape(scenario);
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

// Interleaved pipelines run micro-batches in groups of their stages.
int64_t micro_batches_of_a_group(const Scenario& scenario) {
  const step::Pipeline& pipeline = scenario.train.pipeline;
  return pipeline.chunks > 1 ? pipeline.stages : 1;
}

// A step of so many groups of micro-batches more, or less: the difference is what those make.
Result<step::StepTrace> other_step(const Scenario& scenario, int64_t groups) {
  HEADROOM_ASSIGN(const auto shared, scenario.steps->of(scenario));
  step::TrainOptions train = scenario.train;
  train.accumulation += groups * micro_batches_of_a_group(scenario);
  return step::trace_training(*shared->graph, train);
}

// A group less where there are several, else one more.
int64_t to_other_step(const Scenario& scenario) {
  return scenario.train.accumulation > micro_batches_of_a_group(scenario) ? -1 : 1;
}

// Groups of micro-batches that were not simulated.
double missing_groups(const Scenario& scenario) {
  return static_cast<double>(not_simulated(scenario)) /
         static_cast<double>(micro_batches_of_a_group(scenario));
}

}  // namespace

Result<double> over_all_micro_batches(
    const Scenario& scenario, const step::StepTrace& trace,
    const std::function<Result<double>(const step::StepTrace&)>& figure) {
  HEADROOM_ASSIGN(const double simulated, figure(trace));
  if (not_simulated(scenario) <= 0) return simulated;
  const int64_t more = to_other_step(scenario);
  HEADROOM_ASSIGN(const step::StepTrace trace_of_other, other_step(scenario, more));
  HEADROOM_ASSIGN(const double other, figure(trace_of_other));
  return simulated + missing_groups(scenario) * static_cast<double>(more) * (other - simulated);
}

Result<timing::StepTime> StepTimer::priced(const Scenario& scenario,
                                           const step::StepTrace& trace) const {
  const FitQuestion& question = scenario.question;
  constexpr int64_t kMostInAMachine = 8;
  if (question.megatron && question.nodes == 1 && devices_of(question) > kMostInAMachine) {
    return Error{ErrorCode::unavailable,
                 "how " + std::to_string(devices_of(question)) +
                     " GPUs are joined is not said (--nodes N --link ib-400g, say)",
                 {},
                 {}};
  }
  HEADROOM_ASSIGN(const timing::StepShape shape, shape_of(scenario));
  HEADROOM_ASSIGN(const timing::Cluster cluster, cluster_of(question, devices_of(question)));
  return timing::time_of(trace, {*scenario.device, shape, cluster, division_of(question)}, model_);
}

Result<TimedStep> StepTimer::timed(const Scenario& scenario, const step::StepTrace& trace) const {
  HEADROOM_ASSIGN(timing::StepTime whole, priced(scenario, trace));
  TimedStep timed;
  const int64_t group = micro_batches_of_a_group(scenario);
  const bool is_longer = not_simulated(scenario) > 0;
  if (is_longer || scenario.train.pipeline.stages > 1) {
    const int64_t more = to_other_step(scenario);
    HEADROOM_ASSIGN(const step::StepTrace other, other_step(scenario, more));
    HEADROOM_ASSIGN(const timing::StepTime time, priced(scenario, other));
    timed.micro_batch_seconds = std::abs(whole.seconds - time.seconds) / static_cast<double>(group);
    if (is_longer) {
      const double groups = -static_cast<double>(more) * missing_groups(scenario);
      const timing::StepTime simulated = whole;
      add(groups, simulated, whole);
      add(-groups, time, whole);
    }
  }
  StepTime& time = timed.time;
  time.step_seconds = {whole.seconds_low, whole.seconds, whole.seconds_high};
  // The laws' interval was too narrow for the few steps of Megatron-LM that were at hand, and none
  // was held aside to learn another by (docs/measurements/2026-11-22-megatron-time).
  time.step_seconds.has_ends = !scenario.question.megatron;
  if (const auto tokens = tokens_of(scenario)) time.tokens_per_second = *tokens / whole.seconds;
  time.compute_seconds = whole.compute_seconds;
  time.communication_seconds = whole.communication_seconds;
  time.exposed_seconds = whole.exposed_seconds;
  time.kernels = whole.launches;
  time.provenance = whole.provenance;
  time.basis = whole.basis;
  return timed;
}

Result<double> StepTimer::busy_seconds(const Scenario& scenario,
                                       const step::StepTrace& trace) const {
  HEADROOM_ASSIGN(const timing::StepTime time, priced(scenario, trace));
  return time.compute_seconds + time.blocking_seconds;
}

Result<StepTime> StepTimer::time_of(const Scenario& scenario, const step::StepTrace& trace) const {
  HEADROOM_ASSIGN(TimedStep step, timed(scenario, trace));
  return std::move(step.time);
}

}  // namespace headroom::fit
