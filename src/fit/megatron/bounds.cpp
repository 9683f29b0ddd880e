#include "fit/megatron/bounds.h"

#include <algorithm>
#include <functional>

#include "base/parallel.h"
#include "fit/scenario/shared_steps.h"
#include "step/pipeline.h"

namespace headroom::fit {

namespace {

using Place = MegatronBounds::Place;
using Load = MegatronBounds::Load;
using Count = MegatronBounds::Count;

// One stage of so few as have its place, with so many layers, divided so, alone with its data.
FitQuestion stage_question(const Scenario& any, const engines::MegatronArguments& model,
                           const MegatronDivision& d, Place place, int64_t layers) {
  FitQuestion question = any.question;
  MegatronSetting& setting = *question.megatron;
  model::MegatronRank& rank = setting.stage.rank;
  divide(rank, d);
  rank.pipeline = place == Place::only ? 1 : place == Place::middle ? 3 : 2;
  rank.stage = place == Place::last || place == Place::middle ? 1 : 0;
  question.ranks = std::max(question.ranks, rank.pipeline);  // of one GPU, too
  rank.chunk_layers = {layers};
  const int64_t multiple = model.vocabulary_multiple * d.tensor;
  setting.stage.model.padded_vocabulary =
      (model.vocabulary.value_or(1) + multiple - 1) / multiple * multiple;
  setting.data = {.gradients = setting.data.gradients};
  setting.layers_by_stage.clear();
  setting.stage.model.fp8 = {.recipe = d.fp8_recipe()};
  question.batch = d.micro_batch;
  question.checkpointing = {};
  question.checkpointing.kind = d.recomputation;
  return question;
}

// What passes that ran forward hold when the first one runs backward, beyond what was there.
int64_t held_for_backward(const step::StepTrace& trace) {
  const int last = trace.phases.back().iteration;
  const auto begin = std::ranges::find(trace.phases, last, &step::PhaseMark::iteration);
  const auto backward = std::find_if(begin, trace.phases.end(), [](const step::PhaseMark& mark) {
    return mark.phase == step::Phase::backward;
  });
  if (backward == trace.phases.end()) return 0;
  int64_t held = 0;
  for (size_t i = begin->first_event; i < backward->first_event; ++i) {
    const memory::MemoryEvent& event = trace.memory.events[i];
    const int64_t bytes = trace.memory.buffers[event.buffer].requested_bytes;
    held += event.kind == memory::EventKind::alloc ? bytes : -bytes;
  }
  return held;
}

struct Measured {
  BusySeconds seconds;
  int64_t held = 0;
};

Result<Measured> measure(const Scenario& any, const StepTimer& timer, FitQuestion question,
                         int64_t micro_batches) {
  question.grad_accum = micro_batches;
  HEADROOM_ASSIGN(const Scenario scenario, vary(any, question));
  HEADROOM_ASSIGN(const auto shared, scenario.steps->of(scenario));
  HEADROOM_ASSIGN(const step::StepTrace trace,
                  step::trace_training(*shared->graph, scenario.train));
  Measured measured;
  measured.held = held_for_backward(trace);
  HEADROOM_ASSIGN(measured.seconds, timer.busy_seconds(scenario, trace));
  return measured;
}

// Differences of the first of two stages, which holds two micro-batches where there are two, and
// of the last, which holds one. A stage that has both ends does not do all that either does: what
// comes from the other stage is made by nobody, and rotary angles are made once. Where a loss is,
// one micro-batch alone is not divided by their number, so there differences begin with two.
Result<Load> measure_load(const Scenario& any, const StepTimer& timer,
                          const engines::MegatronArguments& model, const MegatronDivision& d) {
  Measured first[2][2];  // by layers and by micro-batches
  for (int64_t i = 0; i < 4; ++i) {
    FitQuestion question = stage_question(any, model, d, Place::first, 1 + i / 2);
    HEADROOM_ASSIGN(first[i / 2][i % 2], measure(any, timer, std::move(question), 1 + i % 2));
  }
  Measured last[2];  // by micro-batches, of one layer
  Measured only[2];
  for (int64_t i = 0; i < 2; ++i) {
    FitQuestion question = stage_question(any, model, d, Place::last, 1);
    HEADROOM_ASSIGN(last[i], measure(any, timer, std::move(question), 2 + i));
    question = stage_question(any, model, d, Place::only, 1);
    HEADROOM_ASSIGN(only[i], measure(any, timer, std::move(question), 2 + i));
  }
  const auto pass_by = [&](double BusySeconds::*of) {
    const auto one_more = [&](const Measured(&steps)[2]) {
      return steps[1].seconds.*of - steps[0].seconds.*of;
    };
    MegatronBounds::Pass pass;
    pass.layer = one_more(first[1]) - one_more(first[0]);
    pass.first = one_more(first[0]) - pass.layer;
    pass.last = one_more(last) - pass.layer;
    pass.only = one_more(only) - pass.layer;
    return pass;
  };
  const int64_t short_pass = first[0][1].held - first[0][0].held;
  const int64_t long_pass = first[1][1].held - first[1][0].held;
  Load load{.device_seconds = pass_by(&BusySeconds::device),
            .host_seconds = pass_by(&BusySeconds::host)};
  load.layer_bytes = long_pass - short_pass;
  load.first_bytes = short_pass - load.layer_bytes;
  load.last_bytes = last[0].held - load.layer_bytes;
  return load;
}

Result<Count> count_parameters(const Scenario& any, const engines::MegatronArguments& model,
                               const MegatronDivision& d, Place place, int64_t layers) {
  HEADROOM_ASSIGN(const Scenario scenario, vary(any, stage_question(any, model, d, place, layers)));
  HEADROOM_ASSIGN(const auto shared, scenario.steps->of(scenario));
  Count count;
  for (const model::Parameter& parameter : shared->graph->parameters) {
    if (parameter.tied_to) continue;
    double elements = 1;
    for (const int64_t size : parameter.shape) elements *= static_cast<double>(size);
    const bool is_expert = parameter.role == model::ParameterRole::expert;
    (is_expert ? count.expert_elements : count.elements) += elements;
    ++count.tensors;
  }
  return count;
}

std::vector<Place> places_of(const MegatronDivision& d) {
  if (d.stages == 1) return {Place::only};
  return {Place::first, Place::middle, Place::last};
}

// A rank's share of elements that lie in padded buckets, at the least: the last rank has what
// padding there is (megatron_ddp.h, invariant 3).
double least_share(double elements, int64_t ranks, double tensors, int64_t chunks) {
  constexpr double kPadOfParameter = 64;
  constexpr double kPadOfBucket = 128;  // of each rank
  constexpr double kBucketElements = 40'000'000;
  const auto count = static_cast<double>(ranks);
  // A chunk's last bucket, and those of a shared embedding, may be smaller.
  const double buckets = elements / kBucketElements + 4 * static_cast<double>(chunks);
  const double padding = kPadOfParameter * tensors + kPadOfBucket * count * buckets;
  return std::max(0.0, elements / count - padding);
}

}  // namespace

MegatronBounds::LoadKey MegatronBounds::load_key(const MegatronDivision& d) {
  return {d.tensor, d.context, d.expert, d.expert_tensor, d.micro_batch, d.recomputation, d.fp8};
}

MegatronBounds::CountKey MegatronBounds::count_key(const MegatronDivision& d, Place place) {
  return {d.tensor, d.expert, d.expert_tensor, place};
}

MegatronBounds MegatronBounds::make(const Scenario& any, const StepTimer& timer,
                                    const engines::MegatronArguments& model,
                                    const std::vector<MegatronDivision>& divisions,
                                    const SearchProgress& progress) {
  MegatronBounds bounds;
  bounds.model_ = model;
  const auto size_of = [](op::DType type) { return static_cast<double>(op::element_size(type)); };
  bounds.weight_bytes_ = size_of(any.train.weights);
  bounds.gradient_bytes_ = size_of(any.question.megatron->data.gradients);
  constexpr double kMoments = 8;  // two of float32; and a master beside half weights
  bounds.state_bytes_ = any.train.weights == op::DType::f32 ? kMoments : kMoments + 4;
  std::map<LoadKey, MegatronDivision> loads;
  std::map<CountKey, MegatronDivision> counts;
  for (const MegatronDivision& d : divisions) {
    loads.try_emplace(load_key(d), d);
    for (const Place place : places_of(d)) counts.try_emplace(count_key(d, place), d);
  }
  // Each has its place, so that threads need no lock.
  std::vector<std::function<void()>> work;
  for (const auto& [key, d] : loads) {
    Result<Load>& load = bounds.loads_.try_emplace(key, Load()).first->second;
    work.emplace_back([&] { load = measure_load(any, timer, model, d); });
  }
  for (const auto& [key, d] : counts) {
    Result<Counts>& count = bounds.counts_.try_emplace(key, Counts()).first->second;
    work.emplace_back([&] {
      count = [&]() -> Result<Counts> {
        const Place place = std::get<Place>(key);
        Counts both;
        HEADROOM_ASSIGN(both.one, count_parameters(any, model, d, place, 1));
        HEADROOM_ASSIGN(both.two, count_parameters(any, model, d, place, 2));
        return both;
      }();
    });
  }
  constexpr size_t kAtATime = 64;
  for (size_t done = 0; done < work.size();) {
    const size_t count = std::min(kAtATime, work.size() - done);
    for_each_in_parallel(count, 0, [&](size_t i) { work[done + i](); });
    done += count;
    if (!progress) continue;
    progress({.done = static_cast<int64_t>(done), .of = static_cast<int64_t>(work.size())});
  }
  return bounds;
}

// Weights, gradients, states.
double MegatronBounds::kept(const MegatronDivision& d, Place place, const Counts& counts) const {
  const auto more = static_cast<double>(layers_of(d, place) - 1);
  const auto total = [&](double Count::*field) {
    return counts.one.*field + more * (counts.two.*field - counts.one.*field);
  };
  const double elements = total(&Count::elements);
  const double of_experts = total(&Count::expert_elements);
  double stepped = elements + of_experts;
  if (d.distributed_optimizer) {
    const int64_t expert_data = d.gpus() / (d.stages * d.expert * d.expert_tensor);
    const double tensors = total(&Count::tensors);
    stepped = least_share(elements, d.holders(), tensors, d.chunks) +
              least_share(of_experts, expert_data, tensors, d.chunks);
  }
  return (elements + of_experts) * (weight_bytes_ + gradient_bytes_) + stepped * state_bytes_;
}

int64_t MegatronBounds::layers_of(const MegatronDivision& d, Place place) const {
  const bool has_less = d.ends_are_layers && (place == Place::first || place == Place::last);
  return layers_of_stage(model_, d) - (has_less ? 1 : 0);
}

// What passes hold that ran forward, when the first one runs backward.
double MegatronBounds::held(const MegatronDivision& d, Place place, const Load& load) const {
  const int64_t first = place == Place::first || place == Place::only ? load.first_bytes : 0;
  const int64_t last = place == Place::last || place == Place::only ? load.last_bytes : 0;
  const int64_t stage = place == Place::last ? d.stages - 1 : place == Place::middle ? 1 : 0;
  const int64_t micro_batches = model_.global_batch.value_or(0) / d.data / d.micro_batch;
  const int64_t passes = step::most_in_flight({d.stages, stage, d.chunks}, micro_batches);
  // Of each pass, as if the chunk that has a layer less were all.
  const bool has_less = d.ends_are_layers && place != Place::middle && place != Place::only;
  const int64_t layers = layers_of_stage(model_, d) / d.chunks - (has_less ? 1 : 0);
  // The first pass is of the first chunk, which has the embedding; the last stage has one pass of
  // its last chunk at the least.
  const int64_t embedded = d.chunks == 1 ? passes : 1;
  return static_cast<double>(passes * layers) * static_cast<double>(load.layer_bytes) +
         static_cast<double>(embedded) * static_cast<double>(first) + static_cast<double>(last);
}

namespace {

constexpr double kLess = 1 - 1e-9;  // sums in another order may round the other way

}  // namespace

Result<int64_t> MegatronBounds::least_bytes(const MegatronDivision& d, const Load& load) const {
  constexpr double kMost = 9e18;
  double most = 0;
  for (const Place place : places_of(d)) {
    if (place == Place::middle && d.stages == 2) continue;
    HEADROOM_ASSIGN(const Counts counts, counts_.at(count_key(d, place)));
    most = std::max(most, kept(d, place, counts) + held(d, place, load));
  }
  return static_cast<int64_t>(std::min(kMost, kLess * most));
}

// Where that is more than what is there.
void MegatronBounds::add_seconds(const MegatronDivision& d, const Pass& pass,
                                 MegatronLeast& least) const {
  const auto of_layers = [&](Place place) {
    return static_cast<double>(layers_of(d, place)) * pass.layer;
  };
  const auto micro_batches =
      static_cast<double>(model_.global_batch.value_or(0) / d.data / d.micro_batch);
  if (d.stages == 1) {
    const double whole = of_layers(Place::only) + pass.only;
    least.seconds = std::max(least.seconds, kLess * micro_batches * whole);
    return;
  }
  const double first = of_layers(Place::first) + pass.first;
  const double middle = d.stages > 2 ? of_layers(Place::middle) : 0;
  const double last = of_layers(Place::last) + pass.last;
  const double slowest = std::max({first, middle, last});
  const double together = first + last + static_cast<double>(d.stages - 2) * middle;
  const double waiting = kLess * (together - slowest) / static_cast<double>(d.chunks);
  least.waiting_seconds = std::max(least.waiting_seconds, waiting);
  least.seconds = std::max(least.seconds, kLess * micro_batches * slowest + waiting);
}

Result<MegatronLeast> MegatronBounds::of(const MegatronDivision& d) const {
  HEADROOM_ASSIGN(const Load load, loads_.at(load_key(d)));
  MegatronLeast least;
  HEADROOM_ASSIGN(least.bytes, least_bytes(d, load));
  add_seconds(d, load.device_seconds, least);
  add_seconds(d, load.host_seconds, least);
  return least;
}

}  // namespace headroom::fit
