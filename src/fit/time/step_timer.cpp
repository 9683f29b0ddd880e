#include "fit/time/step_timer.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "fit/scenario/shared_steps.h"
#include "fit/search/network.h"
#include "step/pipeline.h"
#include "timing/calibration.h"
#include "timing/operator_work.h"
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
    shape.sequence = part_of_sequence(question);
    const auto tokens = checked_multiply(question.batch, shape.sequence);
    if (!tokens)
      return Error{ErrorCode::usage, "is more tokens than can be counted", "--batch", ""};
    shape.tokens = *tokens;
  }
  if (!scenario.traced) HEADROOM_TRY(timing::read_heads(scenario.model->view(), shape));
  return shape;
}

std::string_view residual_name(const FitQuestion& question) {
  return question.megatron ? timing::kMegatronTraining : timing::kEagerTraining;
}

}  // namespace

const timing::InStep* StepTimer::residual_of(const FitQuestion& question) const {
  return model_.in_step(residual_name(question));
}

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

int64_t not_simulated(const Scenario& scenario) {
  return scenario.question.grad_accum - scenario.train.accumulation;
}

// Interleaved pipelines run micro-batches in groups of their stages.
int64_t micro_batches_of_a_group(const Scenario& scenario) {
  const step::Pipeline& pipeline = scenario.train.pipeline;
  return pipeline.chunks > 1 ? pipeline.group_size() : 1;
}

Result<step::StepTrace> step_of(const Scenario& scenario, int64_t micro_batches) {
  HEADROOM_ASSIGN(const auto shared, scenario.steps->of(scenario));
  step::TrainOptions train = scenario.train;
  train.accumulation = micro_batches;
  return step::trace_training(*shared->graph, train);
}

// Of a group of micro-batches: what a step has more than one with a group less.
Result<timing::RepeatedCalls> calls_of_a_group(const step::StepTrace& longer,
                                               const step::StepTrace& shorter) {
  const auto added = timing::added_calls(timing::last_step(longer), timing::last_step(shorter));
  if (added) return *added;
  return Error{ErrorCode::unavailable, "its micro-batches are not alike", "--grad-accum", ""};
}

// Where each pass of the last step begins among its calls.
std::vector<size_t> begins_of_passes(const step::StepTrace& trace) {
  std::vector<size_t> begins;
  const int last = trace.phases.empty() ? 0 : trace.phases.back().iteration;
  size_t first = 0;
  for (const step::PhaseMark& mark : trace.phases) {
    if (mark.iteration < last) first = trace.calls.size();
    if (mark.iteration != last) continue;
    first = std::min<size_t>(first, mark.first_call);
    const bool is_pass = mark.phase == step::Phase::forward || mark.phase == step::Phase::backward;
    if (is_pass) begins.push_back(mark.first_call - first);
  }
  return begins;
}

// The same of one of Megatron-LM's stages, from the step itself: once passes forward and backward
// take turns, a group's are run again and again. The second group of those is neither the first
// micro-batches, for which parameters are gathered, nor the last, which reduce gradients; where the
// one behind it does the same, a step without it is one with a group less. Nothing where there are
// too few to tell.
std::optional<timing::RepeatedCalls> calls_of_a_steady_group(const Scenario& scenario,
                                                             const step::StepTrace& trace,
                                                             int64_t micro_batches) {
  if (!scenario.question.megatron) return std::nullopt;
  const step::Pipeline& pipeline = scenario.train.pipeline;
  const int64_t all = 2 * micro_batches * pipeline.chunks;
  const int64_t of_a_group = 2 * micro_batches_of_a_group(scenario) * pipeline.chunks;
  const int64_t second = step::warmup_passes(pipeline) + (pipeline.chunks == 1 ? of_a_group : 0);
  const std::vector<size_t> begins = begins_of_passes(trace);
  const bool is_told = static_cast<int64_t>(begins.size()) == all &&
                       second + 2 * of_a_group + step::warmup_passes(pipeline) <= all;
  if (!is_told) return std::nullopt;
  const size_t begin = begins[static_cast<size_t>(second)];
  const size_t end = begins[static_cast<size_t>(second + of_a_group)];
  return timing::calls_twice_in_a_row(timing::last_step(trace), begin, end - begin);
}

}  // namespace

Result<timing::RepeatedCalls> repeated_calls(const Scenario& scenario,
                                             const step::StepTrace& trace) {
  if (not_simulated(scenario) == 0) return timing::RepeatedCalls();
  const int64_t group = micro_batches_of_a_group(scenario);
  const int64_t there = scenario.train.accumulation;
  auto repeated = calls_of_a_steady_group(scenario, trace, there);
  if (!repeated) {
    HEADROOM_ASSIGN(const step::StepTrace shorter, step_of(scenario, there - group));
    HEADROOM_ASSIGN(repeated, calls_of_a_group(trace, shorter));
  }
  repeated->times += not_simulated(scenario) / group;
  return *repeated;
}

Result<timing::StepTime> StepTimer::priced(const Scenario& scenario, const step::StepTrace& trace,
                                           const timing::RepeatedCalls& repeated) const {
  const FitQuestion& question = scenario.question;
  constexpr int64_t kMostInAMachine = 8;
  if (question.megatron && question.nodes == 1 && devices_of(question) > kMostInAMachine) {
    return Error{ErrorCode::unavailable,
                 "how " + std::to_string(devices_of(question)) +
                     " GPUs are joined is not said (--nodes N --link ib-400g, say)",
                 {},
                 {}};
  }
  if (question.offload != Offload::none) {
    return Error{ErrorCode::unavailable,
                 "what is copied to the host and stepped there takes time that no law knows",
                 "--offload",
                 {}};
  }
  HEADROOM_ASSIGN(const timing::StepShape shape, shape_of(scenario));
  HEADROOM_ASSIGN(const timing::Cluster cluster, cluster_of(question, devices_of(question)));
  const timing::StepTimeQuestion asked{*scenario.device, shape, cluster, division_of(question),
                                       residual_name(question)};
  return timing::time_of(trace, asked, model_, repeated);
}

// All of a step's are in its trace, and a micro-batch's passes far apart in it.
Result<double> StepTimer::one_more(const Scenario& scenario, const step::StepTrace& trace) const {
  const int64_t group = micro_batches_of_a_group(scenario);
  HEADROOM_ASSIGN(const step::StepTrace longer,
                  step_of(scenario, scenario.train.accumulation + group));
  HEADROOM_ASSIGN(const timing::StepTime more, priced(scenario, longer, {}));
  HEADROOM_ASSIGN(const timing::StepTime less, priced(scenario, trace, {}));
  return (more.seconds - less.seconds) / static_cast<double>(group);
}

// Of a step that goes through the whole warm-up, where the trace may have too few micro-batches.
Result<double> StepTimer::micro_batch_seconds(const Scenario& scenario,
                                              const step::StepTrace& trace) const {
  constexpr int64_t kSteady = 3;  // the first one's calls, and the last one's, are its own
  const int64_t group = micro_batches_of_a_group(scenario);
  const step::Pipeline& pipeline = scenario.train.pipeline;
  const int64_t there = scenario.train.accumulation;
  const bool is_each_run = pipeline.schedule == step::PipelineSchedule::gpipe ||
                           (scenario.train.keep_outputs && there == scenario.question.grad_accum);
  if (is_each_run) return one_more(scenario, trace);
  const int64_t enough =
      step::representative_micro_batches(pipeline, std::numeric_limits<int64_t>::max(), kSteady);
  const int64_t most = std::max(there, enough);
  std::optional<step::StepTrace> longer;
  if (most > there) {
    HEADROOM_ASSIGN(longer, step_of(scenario, most));
  }
  const step::StepTrace& whole = longer ? *longer : trace;
  auto added = calls_of_a_steady_group(scenario, whole, most);
  if (!added && most - group == there) {
    HEADROOM_ASSIGN(added, calls_of_a_group(whole, trace));
  } else if (!added) {
    HEADROOM_ASSIGN(const step::StepTrace shorter, step_of(scenario, most - group));
    HEADROOM_ASSIGN(added, calls_of_a_group(whole, shorter));
  }
  HEADROOM_ASSIGN(const timing::StepTime time, priced(scenario, whole, *added));
  return time.repeat_seconds / static_cast<double>(group);
}

Result<TimedStep> StepTimer::timed(const Scenario& scenario, const step::StepTrace& trace) const {
  HEADROOM_ASSIGN(const timing::RepeatedCalls repeated, repeated_calls(scenario, trace));
  HEADROOM_ASSIGN(const timing::StepTime whole, priced(scenario, trace, repeated));
  TimedStep timed;
  if (repeated.count > 0) {
    timed.micro_batch_seconds =
        whole.repeat_seconds / static_cast<double>(micro_batches_of_a_group(scenario));
  } else if (scenario.train.pipeline.stages > 1) {
    HEADROOM_ASSIGN(timed.micro_batch_seconds, micro_batch_seconds(scenario, trace));
  }
  StepTime& time = timed.time;
  time.step_seconds = {whole.seconds_low, whole.seconds, whole.seconds_high};
  if (const auto tokens = tokens_of(scenario)) time.tokens_per_second = *tokens / whole.seconds;
  time.compute_seconds = whole.compute_seconds;
  time.communication_seconds = whole.communication_seconds;
  time.exposed_seconds = whole.exposed_seconds;
  time.host_seconds = whole.host_seconds;
  time.kernels = whole.launches;
  time.provenance = whole.provenance;
  time.basis = whole.basis;
  return timed;
}

Result<BusySeconds> StepTimer::busy_seconds(const Scenario& scenario,
                                            const step::StepTrace& trace) const {
  HEADROOM_ASSIGN(const timing::StepTime time, priced(scenario, trace, {}));
  return BusySeconds{time.compute_seconds + time.blocking_seconds, time.launching_seconds};
}

Result<StepTime> StepTimer::time_of(const Scenario& scenario, const step::StepTrace& trace) const {
  HEADROOM_ASSIGN(TimedStep step, timed(scenario, trace));
  return std::move(step.time);
}

}  // namespace headroom::fit
