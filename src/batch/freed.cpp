#include "batch/freed.h"

#include <algorithm>
#include <cmath>

#include "batch/replication.h"

namespace headroom::batch {
namespace {

constexpr size_t kMostDevices = 4;

timing::DecodeOptions options_for(const FreedQuestion& freed, int64_t context) {
  return {
      .context = context, .weights = freed.question->weights, .variant = freed.question->variant};
}

Result<std::optional<LongerContext>> longer_context(const FreedQuestion& freed,
                                                    const Predicted& predicted,
                                                    const timing::TimingModel& model) {
  const double now = freed.workload.context_mean;
  const double needed = kv_tokens_needed(freed.chosen.running, freed.workload);
  LongerContext longer;
  longer.factor = predicted.cache_tokens() / needed;
  constexpr double kWorthIt = 1.05;
  if (!(longer.factor > kWorthIt)) return std::optional<LongerContext>();
  longer.tokens = now * longer.factor;
  if (longer.tokens > static_cast<double>(timing::kMostContext)) {
    return std::optional<LongerContext>();
  }
  auto made = timing::DecodePredictor::make(*freed.config, *freed.question->device,
                                            options_for(freed, std::llround(longer.tokens)), model);
  // A model may have no such contexts: a window, or places that end.
  if (!made) return std::optional<LongerContext>();
  HEADROOM_ASSIGN(const timing::DecodeStep step, made->step(freed.chosen.batch));
  longer.itl_seconds = {step.step.low_seconds, step.step.seconds, step.step.high_seconds};
  return std::optional(longer);
}

Result<std::optional<PrefixCache>> prefix_cache(const FreedQuestion& freed,
                                                const Predicted& predicted) {
  PrefixCache cache;
  cache.tokens = static_cast<double>(predicted.cache().count - freed.needed.count) /
                 predicted.bytes_of_token();
  if (!(cache.tokens > freed.workload.input_mean)) return std::optional<PrefixCache>();
  cache.prompts = cache.tokens / freed.workload.input_mean;
  HEADROOM_ASSIGN(const Interval share, predicted.curve().prefill_share(freed.chosen.batch));
  const auto gain = [](double part) { return 1 / (1 - part); };
  const double ends[] = {gain(share.low), gain(share.expected), gain(share.high)};
  cache.speedup_at_most = {*std::ranges::min_element(ends), ends[1],
                           *std::ranges::max_element(ends)};
  return std::optional(cache);
}

// Cards of the same maker with less memory on which some batch meets the same target.
Result<std::vector<SmallerDevice>> smaller_devices(const FreedQuestion& freed,
                                                   const timing::TimingModel& model) {
  const device::Device& own = *freed.question->device;
  std::vector<const device::Device*> candidates;
  for (const device::Device& device : freed.question->other_devices) {
    const bool is_smaller = device.usable_memory.known() &&
                            device.usable_memory.value < own.usable_memory.value &&
                            device.vendor == own.vendor;
    if (is_smaller) candidates.push_back(&device);
  }
  std::ranges::stable_sort(
      candidates, {}, [](const device::Device* device) { return device->usable_memory.value; });
  std::vector<SmallerDevice> found;
  for (const device::Device* device : candidates) {
    if (found.size() == kMostDevices) break;
    const auto options = options_for(freed, mean_context(freed.workload));
    const auto predicted = Predicted::make(*freed.config, *device, options, freed.workload, model);
    if (!predicted || predicted->curve().candidates().empty()) continue;
    const auto best = best_of(*predicted, freed.advisor);
    if (!best || !*best) continue;
    const BatchPoint& point = (*best)->point;
    found.push_back({.name = device->name,
                     .memory = device->usable_memory.value,
                     .advice = (*best)->advice,
                     .throughput_tokens_per_second = point.throughput_tokens_per_second,
                     .itl_seconds = point.itl_seconds,
                     .share = point.throughput_tokens_per_second.expected /
                              freed.chosen.throughput_tokens_per_second.expected});
  }
  return found;
}

Interval slowed(const Interval& rate, double slowdown) {
  return {rate.low * kMpsKeeps.low / slowdown, rate.expected * kMpsKeeps.expected / slowdown,
          rate.high * kMpsKeeps.high / slowdown};
}

Result<Colocated> colocated(const FreedQuestion& freed, const Predicted& predicted,
                            const Companion& companion, const timing::TimingModel& model) {
  const device::Device& device = *freed.question->device;
  Colocated both;
  both.model = companion.name;
  // What is left to it is a device of its own, as far as memory goes.
  device::Device rest = device;
  const double left =
      static_cast<double>(device.usable_memory.value.count) -
      static_cast<double>(predicted.predictor().weights().count + freed.needed.count +
                          device.context.value.expected.count) /
          timing::kMemoryShare;
  rest.usable_memory.value = Bytes(static_cast<int64_t>(std::max(1.0, left)));
  const timing::DecodeOptions options{.context = mean_context(freed.workload),
                                      .weights = freed.question->weights};
  HEADROOM_ASSIGN(const Predicted second,
                  Predicted::make(companion.config, rest, options, freed.workload, model));
  both.weights_bytes = static_cast<double>(second.predictor().weights().count);
  if (second.cache().count == 0 || second.curve().candidates().empty()) return both;
  AdvisorOptions advisor = freed.advisor;
  if (freed.question->slo && !freed.question->slo->seconds) {
    HEADROOM_ASSIGN(const BatchPoint reference, second.curve().at(freed.question->slo->at_batch));
    advisor.itl_target_seconds = freed.question->slo->multiple * reference.itl_seconds.expected;
  }
  HEADROOM_ASSIGN(const auto best, best_of(second, advisor));
  if (!best) return both;
  both.fits = true;
  both.advice = best->advice;
  both.kv_bytes = kv_tokens_needed(best->point.running, freed.workload) * second.bytes_of_token();
  HEADROOM_ASSIGN(const timing::DecodeStep step, second.predictor().step(best->point.batch));
  const double gap = step.host.seconds / step.parts_seconds();
  both.slowdown = 1 + (1 - freed.host_gap) * (1 - gap);
  both.throughput_tokens_per_second =
      slowed(freed.chosen.throughput_tokens_per_second, both.slowdown);
  both.throughput_tokens_per_second_second =
      slowed(best->point.throughput_tokens_per_second, both.slowdown);
  both.itl_seconds = freed.chosen.itl_seconds.expected * both.slowdown;
  both.itl_seconds_second = best->point.itl_seconds.expected * both.slowdown;
  return both;
}

}  // namespace

Result<FreedUses> uses_of_freed(const FreedQuestion& freed, const Predicted& predicted,
                                const Companion* companion, const timing::TimingModel& model) {
  FreedUses uses;
  HEADROOM_ASSIGN(uses.longer_context, longer_context(freed, predicted, model));
  HEADROOM_ASSIGN(uses.prefix_cache, prefix_cache(freed, predicted));
  HEADROOM_ASSIGN(uses.smaller_devices, smaller_devices(freed, model));
  if (companion != nullptr) {
    HEADROOM_ASSIGN(uses.colocated, colocated(freed, predicted, *companion, model));
  }
  return uses;
}

}  // namespace headroom::batch
