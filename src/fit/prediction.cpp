#include "fit/prediction.h"

#include <algorithm>
#include <optional>

#include "fit/components.h"
#include "fit/device/device_used.h"
#include "fit/device/oom_probability.h"
#include "fit/growth.h"
#include "fit/measured/correction.h"
#include "fit/scenario/shared_steps.h"
#include "memory/planned_replay.h"

namespace headroom::fit {

namespace {

// Of a device's memory; nothing: it never runs out.
using Limit = std::optional<Bytes>;

// What the scenario's allocator makes of the step.
memory::ReplayResult replay_within(const Scenario& s, const memory::MemoryTrace& trace, Limit limit,
                                   size_t timeline_points) {
  if (s.planned) {
    return memory::replay_planned(trace, {.limit_bytes = limit ? limit->count : memory::kUnlimited,
                                          .timeline_points = timeline_points});
  }
  memory::DeviceMemory device =
      limit ? memory::DeviceMemory(*limit, *limit) : memory::DeviceMemory();
  return memory::replay(trace, s.allocator, device, {.timeline_points = timeline_points});
}

// Kept back of the peak for what its prediction may miss: chosen, not fitted; the errors in
// docs/measurements/2026-11-21-fit-accuracy are 0.7 % at the most, of three models.
constexpr double kAllocatedMayVary = 0.02;

// Whether the step, which ran on a device with as much to give as is expected (`replay`), ends on
// one that has less: the context at its largest, and a part of the step's own need kept back. An
// allocator that meets the device's end empties its cache and goes on, so what it would cache on a
// larger device decides nothing; one that never held more than the lower limit would not meet it.
bool fits_at_worst(const Scenario& s, const memory::MemoryTrace& trace,
                   const memory::ReplayResult& replay) {
  const Bytes peak_allocated(replay.peak_allocated.bytes);
  const Bytes kept_back(
      static_cast<int64_t>(kAllocatedMayVary * static_cast<double>(peak_allocated.count)));
  const Bytes limit =
      s.offered - outside_allocator(*s.device, communicators_of(s.question)).high - kept_back;
  if (limit < peak_allocated) return false;
  if (Bytes(replay.peak_reserved.bytes) <= limit) return true;
  return !replay_within(s, trace, limit, 0).out_of_memory;
}

// The smallest limit within which the step runs, as far as it decides whether it does on the
// device: by bisection between needs that leave no doubt. An allocator that never held more than a
// limit does not meet it.
Bytes least_limit(const Scenario& s, const memory::MemoryTrace& trace,
                  const memory::ReplayResult& replay, UndecidedNeeds between) {
  constexpr Bytes kNearEnough{8 * kMiB};
  const auto runs = [&](Bytes limit) {
    if (limit < Bytes(replay.peak_allocated.bytes)) return false;
    return limit >= Bytes(replay.peak_reserved.bytes) ||
           !replay_within(s, trace, limit, 0).out_of_memory;
  };
  if (runs(between.low)) return between.low;
  if (!runs(between.high)) return between.high;
  while (between.high - between.low > kNearEnough) {
    const Bytes middle = between.low + Bytes((between.high - between.low).count / 2);
    (runs(middle) ? between.high : between.low) = middle;
  }
  return between.high;
}

// `p` is corrected already: what a calibration adds to the peak is needed, too.
double chance_of_running_out(const Scenario& s, const DetailedPrediction& detail) {
  const Interval outside = outside_allocator(*s.device, communicators_of(s.question));
  const Bytes added = detail.prediction.peak_allocated - Bytes(detail.replay.peak_allocated.bytes);
  const UndecidedNeeds needs = undecided_needs(outside, s.offered);
  const Bytes least =
      least_limit(s, detail.trace.memory, detail.replay, {needs.low - added, needs.high - added});
  return oom_probability(least + added, outside, s.offered);
}

void fill_figures(Prediction& p, const memory::ReplayResult& replay) {
  p.peak_allocated = Bytes(replay.peak_allocated.bytes);
  p.peak_reserved = Bytes(replay.peak_reserved.bytes);
  p.peak_requested = Bytes(replay.peak_requested.bytes);
  p.steady_allocated = Bytes(replay.statistics.allocated_bytes.current);
  p.cache_flushes = replay.statistics.alloc_retries;
  p.breakdown = components_of(replay.at_peak_allocated);
  p.peak_event = replay.peak_allocated.event;
}

// Whether parameters come and go on streams of their own.
bool gathers_beside(const step::ParallelOptions& parallel) {
  const auto* zero = std::get_if<step::ZeroOptions>(&parallel);
  return std::holds_alternative<step::FsdpOptions>(parallel) ||
         (zero != nullptr && zero->stage == 3 && zero->overlap_comm);
}

struct Wanted {
  size_t timeline_points = 0;
  Figures figures = Figures::always;
  bool calls = true;  // of the trace
};

Result<DetailedPrediction> predict_with(const Scenario& s, const Wanted& wanted) {
  const Interval context = outside_allocator(*s.device, communicators_of(s.question));
  // What was asked for bounds what is reserved from below, and that with the context's high what
  // the device shows at the most (device_used.h): where it is too much, the verdict cannot be yes.
  // A calibration moves figures either way, so under one nothing is concluded early.
  const bool may_stop = wanted.figures == Figures::where_it_fits && s.calibration == nullptr;
  HEADROOM_ASSIGN(const auto shared, s.steps->of(s));
  const model::Graph& graph = *shared->graph;
  step::TrainOptions train = s.train;
  train.keep_calls = wanted.calls;
  if (may_stop) train.live_bytes_of_interest = (s.offered - context.high).count;
  DetailedPrediction detail;
  HEADROOM_ASSIGN(detail.trace, step::trace_training(graph, train, shared->passes.get()));
  Prediction& p = detail.prediction;
  p.parameter_count = model::parameter_count(graph, false);
  p.trainable_count = model::parameter_count(graph, true);
  p.saved_for_backward = Bytes(detail.trace.saved_bytes);
  const step::HostMemory& host = detail.trace.host;
  if (host.taken_bytes > 0) p.host = {Bytes(host.requested_bytes), Bytes(host.taken_bytes)};

  if (detail.trace.cut_short) {
    p.growth = growth_until(detail.trace, s.offered - context.high);
    return detail;
  }
  const Bytes limit = std::max(Bytes(0), s.offered - context.expected);
  bool fits_at_all = detail.trace.peak_live_bytes <= limit.count;
  if (fits_at_all) {
    detail.replay = replay_within(s, detail.trace.memory, limit, wanted.timeline_points);
    fits_at_all = !detail.replay.out_of_memory;
  }
  p.growth = growth_until(detail.trace, s.offered - context.high - unused_at_most(detail.replay));
  if (!fits_at_all && may_stop) return detail;
  if (!fits_at_all) {
    detail.replay = replay_within(s, detail.trace.memory, std::nullopt, wanted.timeline_points);
    if (detail.replay.out_of_memory) {
      return Error{ErrorCode::bad_input, "the step needs more memory than an address space holds",
                   s.model->name, "look at the batch and the sequence"};
    }
  }
  fill_figures(p, detail.replay);
  p.device_used =
      device_used(*s.device,
                  {p.peak_allocated, p.peak_reserved, p.steady_allocated, s.loss == Loss::fused,
                   communicators_of(s.question), gathers_beside(s.train.parallel)},
                  s.offered);
  if (fits_at_all) {
    // It ran within the device, if only by emptying its cache, so it never used all there is.
    const Bytes most = s.offered - kLeastSegment;
    p.device_used.expected = std::min(p.device_used.expected, most);
    if (p.device_used.high > most && fits_at_worst(s, detail.trace.memory, detail.replay)) {
      p.device_used.high = most;
    }
  }
  correct(p, s);
  p.breakdown[Component::cached_unused] = p.peak_reserved - p.peak_allocated;
  p.breakdown[Component::context] = p.device_used.expected - p.peak_reserved;
  p.verdict = p.device_used.high < s.offered  ? Verdict::yes
              : p.device_used.low > s.offered ? Verdict::no
                                              : Verdict::at_risk;
  return detail;
}

}  // namespace

Result<DetailedPrediction> predict_in_detail(const Scenario& scenario, size_t timeline_points) {
  HEADROOM_ASSIGN(DetailedPrediction detail,
                  predict_with(scenario, {.timeline_points = timeline_points}));
  add_oom_probability(scenario, detail);
  return detail;
}

void add_oom_probability(const Scenario& scenario, DetailedPrediction& detail) {
  detail.prediction.oom_probability = chance_of_running_out(scenario, detail);
}

Result<DetailedPrediction> predict_with_trace(const Scenario& scenario, Figures figures) {
  return predict_with(scenario, {.figures = figures});
}

Result<Prediction> predict(const Scenario& scenario, Figures figures) {
  HEADROOM_ASSIGN(DetailedPrediction detail,
                  predict_with(scenario, {.figures = figures, .calls = false}));
  return detail.prediction;
}

Result<std::optional<Interval>> peak_by_imbalance(const Scenario& scenario, Bytes expected) {
  const FitQuestion& question = scenario.question;
  const ExpertImbalance& imbalance = question.expert_imbalance;
  const bool is_routed =
      question.expert_ranks > 1 || (question.megatron && question.megatron->routes_among_ranks());
  if (!is_routed || imbalance.low == imbalance.high) return std::optional<Interval>();
  Interval peak{expected, expected, expected};
  for (const auto& [share, end] :
       {std::pair{imbalance.low, &peak.low}, {imbalance.high, &peak.high}}) {
    if (share == imbalance.expected) continue;
    FitQuestion asked = question;
    asked.expert_imbalance.expected = share;
    HEADROOM_ASSIGN(const Scenario varied, vary(scenario, asked));
    HEADROOM_ASSIGN(const Prediction prediction, predict(varied));
    *end = prediction.peak_allocated;
  }
  peak.low = std::min(peak.low, expected);
  peak.high = std::max(peak.high, expected);
  return std::optional<Interval>(peak);
}

Result<Bytes> allocated_before_release(const Scenario& s) {
  HEADROOM_ASSIGN(const auto shared, s.steps->of(s));
  HEADROOM_ASSIGN(step::StepTrace trace,
                  step::trace_training(*shared->graph, s.train, shared->passes.get()));
  const auto release =
      std::find_if(trace.phases.rbegin(), trace.phases.rend(),
                   [](const step::PhaseMark& mark) { return mark.phase == step::Phase::release; });
  HEADROOM_CHECK(release != trace.phases.rend(), "a step without its end");
  trace.memory.events.resize(release->first_event);
  const auto replay = replay_within(s, trace.memory, std::nullopt, 0);
  return Bytes(replay.statistics.allocated_bytes.current);
}

}  // namespace headroom::fit
