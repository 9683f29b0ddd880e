#include "batch/freed.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "batch/checkpoint.h"
#include "batch/replication.h"

namespace headroom::batch {
namespace {

constexpr size_t kMostDevices = 4;

timing::DecodeOptions options_for(const FreedQuestion& freed, int64_t context) {
  return {.context = context,
          .weights = freed.base.question->weights,
          .variant = freed.base.question->variant};
}

// Prompts and answers so many times as long.
Workload scaled(const Workload& workload, double factor) {
  return {workload.input_mean * factor, workload.output_mean * factor,
          workload.context_mean * factor, workload.context_deviation * factor};
}

BatchQuestion scaled(BatchQuestion question, double factor) {
  question.input_tokens *= factor;
  question.output_tokens *= factor;
  const auto longer = [&](int64_t tokens) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * factor));
  };
  for (formats::RequestLengths& request : question.requests) {
    request = {longer(request.input_tokens), longer(request.output_tokens)};
  }
  return question;
}

Result<std::optional<LongerContext>> longer_context(const FreedQuestion& freed,
                                                    const Predicted& predicted,
                                                    const timing::TimingModel& model) {
  const double now = freed.base.workload.context_mean;
  const double needed = kv_tokens_needed(freed.chosen.running, freed.base.workload);
  LongerContext longer;
  longer.factor = predicted.cache_tokens() / needed;
  constexpr double kWorthIt = 1.05;
  if (!(longer.factor > kWorthIt)) return std::optional<LongerContext>();
  longer.tokens = now * longer.factor;
  if (longer.tokens > static_cast<double>(timing::kMostContext)) {
    return std::optional<LongerContext>();
  }
  const Workload workload = scaled(freed.base.workload, longer.factor);
  const auto made =
      Predicted::make(*freed.base.config, *freed.base.question->device,
                      options_for(freed, std::llround(longer.tokens)), workload, model);
  // A model may have no such contexts: a window, or places that end.
  if (!made) return std::optional<LongerContext>();
  if (const auto& load = freed.base.load) {
    const BatchQuestion longer_question = scaled(*freed.base.question, longer.factor);
    HEADROOM_ASSIGN(longer.load,
                    load_of(longer_question, workload, *made, freed.base.correction, *load));
    if (!(longer.load->highest_rate.expected > 0)) return std::optional<LongerContext>();
    return std::optional(longer);
  }
  HEADROOM_ASSIGN(const BatchPoint point, made->curve().at(freed.chosen.batch));
  longer.itl_seconds = corrected(point, freed.base.correction).itl_seconds;
  longer.meets_target = meets(longer.itl_seconds.expected, freed.base.advisor.itl_target_seconds);
  if (!longer.meets_target.value_or(true)) return std::optional<LongerContext>();
  return std::optional(longer);
}

Result<std::optional<PrefixCache>> prefix_cache(const FreedQuestion& freed,
                                                const Predicted& predicted) {
  PrefixCache cache;
  cache.tokens = static_cast<double>(predicted.cache().count - freed.needed.count) /
                 predicted.bytes_of_token();
  if (!(cache.tokens > freed.base.workload.input_mean)) return std::optional<PrefixCache>();
  cache.prompts = cache.tokens / freed.base.workload.input_mean;
  HEADROOM_ASSIGN(const Interval share, predicted.curve().prefill_share(freed.chosen.batch));
  const auto gain = [](double part) { return 1 / (1 - part); };
  const double ends[] = {gain(share.low), gain(share.expected), gain(share.high)};
  cache.speedup_at_most = {*std::ranges::min_element(ends), ends[1],
                           *std::ranges::max_element(ends)};
  return std::optional(cache);
}

// Nothing where the model does not fit, some figure is not known, or no batch or rate keeps the
// targets at the bad end of the law: a card that perhaps does is no advice.
std::optional<SmallerDevice> smaller_device(const FreedQuestion& freed,
                                            const device::Device& device,
                                            const timing::TimingModel& model) {
  const Baseline& base = freed.base;
  const auto options = options_for(freed, mean_context(base.workload));
  const auto predicted = Predicted::make(*base.config, device, options, base.workload, model);
  if (!predicted || predicted->curve().candidates().empty()) return std::nullopt;
  SmallerDevice found{.name = device.name, .memory = device.usable_memory.value};
  if (base.load) {
    const auto load =
        load_of(*base.question, base.workload, *predicted, base.correction, *base.load);
    if (!load || !(load->highest_rate.low > 0)) return std::nullopt;
    found.load = *load;
    if (const auto gain = gain_over(base.load->best, *load)) found.share = gain->expected;
    return found;
  }
  const auto best = best_of(*predicted, base.advisor, base.correction);
  if (!best || !*best || !(*best)->advice.low) return std::nullopt;
  const BatchPoint& point = (*best)->point;
  found.advice = (*best)->advice;
  found.throughput_tokens_per_second = point.throughput_tokens_per_second;
  found.itl_seconds = point.itl_seconds;
  found.share = point.throughput_tokens_per_second.expected /
                freed.chosen.throughput_tokens_per_second.expected;
  return found;
}

// Cards of the same maker with less memory that keep the same targets.
std::vector<SmallerDevice> smaller_devices(const FreedQuestion& freed,
                                           const timing::TimingModel& model) {
  const device::Device& own = *freed.base.question->device;
  std::vector<const device::Device*> candidates;
  for (const device::Device& device : freed.base.question->other_devices) {
    const bool is_smaller = device.usable_memory.known() &&
                            device.usable_memory.value < own.usable_memory.value &&
                            device.vendor == own.vendor && device.name != own.name;
    if (is_smaller) candidates.push_back(&device);
  }
  std::ranges::stable_sort(
      candidates, {}, [](const device::Device* device) { return device->usable_memory.value; });
  std::vector<SmallerDevice> found;
  // So many at a time, as only the first that will do are told.
  for (size_t from = 0; from < candidates.size(); from += kMostDevices) {
    std::vector<std::optional<SmallerDevice>> tried(
        std::min(kMostDevices, candidates.size() - from));
    for_each_in_parallel(tried.size(), 0, [&](size_t i) {
      tried[i] = smaller_device(freed, *candidates[from + i], model);
    });
    for (std::optional<SmallerDevice>& one : tried) {
      if (found.size() == kMostDevices) return found;
      if (one) found.push_back(*std::move(one));
    }
  }
  return found;
}

Interval beside(const Interval& rate, double slowdown) {
  return product(product(rate, kMpsKeeps), 1 / slowdown);
}

// What the first one leaves is a device of its own, as far as memory goes.
device::Device rest_of(const FreedQuestion& freed, const Predicted& predicted) {
  device::Device rest = *freed.base.question->device;
  const double left = static_cast<double>(rest.usable_memory.value.count) -
                      static_cast<double>(predicted.predictor().weights().count +
                                          freed.needed.count + rest.context.value.expected.count) /
                          timing::kMemoryShare;
  rest.usable_memory.value = Bytes(static_cast<int64_t>(std::max(1.0, left)));
  return rest;
}

// Of the second model, beside the first one.
struct Slowed {
  BatchPoint point;
  double slowdown = 1;
};

Result<Slowed> slowed_point(const FreedQuestion& freed, const PredictedCurve& second,
                            int64_t batch) {
  HEADROOM_ASSIGN(const timing::DecodeStep step, second.step(batch));
  HEADROOM_ASSIGN(const BatchPoint alone, second.at(batch));
  const double gap = step.host.seconds / step.parts_seconds();
  Slowed slowed{corrected(alone, freed.base.correction), 1 + (1 - freed.host_gap) * (1 - gap)};
  Interval& rate = slowed.point.throughput_tokens_per_second;
  rate = beside(rate, slowed.slowdown);
  slowed.point.itl_seconds = product(slowed.point.itl_seconds, slowed.slowdown);
  return slowed;
}

// Its own target, where that is a multiple of what it takes alone.
Result<AdvisorOptions> advisor_of(const FreedQuestion& freed, const PredictedCurve& second) {
  AdvisorOptions advisor = freed.base.advisor;
  const auto& slo = freed.base.question->slo;
  if (!slo || slo->seconds) return advisor;
  HEADROOM_ASSIGN(const BatchPoint reference, second.at(slo->at_batch));
  advisor.itl_target_seconds =
      slo->multiple * corrected(reference, freed.base.correction).itl_seconds.expected;
  return advisor;
}

Result<Colocated> colocated(const FreedQuestion& freed, const Predicted& predicted,
                            const Companion& companion, const timing::TimingModel& model) {
  Colocated both;
  both.model = companion.name;
  const device::Device rest = rest_of(freed, predicted);
  HEADROOM_ASSIGN(const BatchQuestion own,
                  question_of_second(companion.config, *freed.base.question));
  const timing::DecodeOptions options{
      .context = mean_context(freed.base.workload), .weights = own.weights, .variant = own.variant};
  HEADROOM_ASSIGN(const Predicted second,
                  Predicted::make(companion.config, rest, options, freed.base.workload, model));
  both.weights_bytes = static_cast<double>(second.predictor().weights().count);
  if (second.cache().count == 0 || second.curve().candidates().empty()) return both;
  HEADROOM_ASSIGN(const AdvisorOptions advisor, advisor_of(freed, second.curve()));
  HEADROOM_ASSIGN(const Slowed one, slowed_point(freed, second.curve(), 1));
  std::vector<Slowed> all;
  std::vector<BatchPoint> points;
  for (const int64_t batch : second.curve().candidates()) {
    HEADROOM_ASSIGN(const Slowed slowed, slowed_point(freed, second.curve(), batch));
    all.push_back(slowed);
    points.push_back(slowed.point);
  }
  both.advice = BatchingConfigurationAdvisor(advisor).advise(points, one.point, Bound::memory);
  if (!both.advice.batch) return both;
  const Slowed& best = *std::ranges::find(all, *both.advice.batch,
                                          [](const Slowed& slowed) { return slowed.point.batch; });
  both.fits = true;
  both.kv_tokens = kv_tokens_needed(best.point.running, freed.base.workload);
  both.kv_bytes = both.kv_tokens * second.bytes_of_token();
  both.slowdown = best.slowdown;
  both.throughput_tokens_per_second =
      beside(freed.chosen.throughput_tokens_per_second, both.slowdown);
  both.throughput_tokens_per_second_second = best.point.throughput_tokens_per_second;
  both.itl_seconds = freed.chosen.itl_seconds.expected * both.slowdown;
  both.itl_seconds_second = best.point.itl_seconds.expected;
  both.first_meets_target = meets(both.itl_seconds, freed.base.advisor.itl_target_seconds);
  return both;
}

}  // namespace

Result<void> check_colocation(const BatchQuestion& question) {
  const auto refused = [](std::string words, std::string hint) {
    return Error{ErrorCode::usage, std::move(words), "--colocate", std::move(hint)};
  };
  if (!question.device) {
    return refused("a second model is predicted beside a first", "MODEL and --device, too");
  }
  if (question.variant.tensor_parallel * question.variant.pipeline_parallel > 1) {
    return refused("two models share one GPU, not several", "it without --tp and --pp");
  }
  if (question.device->vendor != device::Vendor::nvidia) {
    return refused("two models share a GPU under MPS, which NVIDIA's have",
                   "a --device of NVIDIA's");
  }
  return {};
}

Result<FreedUses> uses_of_freed(const FreedQuestion& freed, const Predicted& predicted,
                                const Companion* companion, const timing::TimingModel& model) {
  FreedUses uses;
  HEADROOM_ASSIGN(uses.longer_context, longer_context(freed, predicted, model));
  HEADROOM_ASSIGN(uses.prefix_cache, prefix_cache(freed, predicted));
  uses.smaller_devices = smaller_devices(freed, model);
  if (companion != nullptr) {
    HEADROOM_ASSIGN(uses.colocated, colocated(freed, predicted, *companion, model));
  }
  return uses;
}

}  // namespace headroom::batch
