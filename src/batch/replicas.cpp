#include "batch/replicas.h"

#include <algorithm>

#include "batch/advisor.h"
#include "batch/replication.h"

namespace headroom::batch {
namespace {

constexpr const char* kNoHostGap =
    "what replicas would gain depends on how long the GPU waits for the host in each step: give "
    "--host-gap SHARE (1 - kernel time / wall time of a decode step in a profile), or a MODEL and "
    "a --device to have it predicted";

const BatchPoint& chosen_of(const BatchAnswer& answer) {
  return answer.curve[*answer.chosen].point;
}

bool shares_one_gpu(const BatchAnswer& answer) {
  const timing::DecodeVariant& variant = answer.question.variant;
  return variant.tensor_parallel * variant.pipeline_parallel == 1;
}

// What chunked prefill alone gains at the largest limit, by the prediction: errors of the law are
// alike in both. Nothing where it has that already, or where the largest limit was measured:
// whether it had is not known.
Result<std::optional<double>> chunked_gain(const Predicted* predicted, const BatchAnswer& answer) {
  if (predicted == nullptr || !answer.question.points.empty()) return std::optional<double>();
  if (predicted->curve().has_chunked_prefill()) return std::optional<double>();
  const int64_t largest = answer.curve[answer.largest].point.batch;
  HEADROOM_ASSIGN(const Interval with, predicted->curve().chunked_throughput(largest));
  HEADROOM_ASSIGN(const BatchPoint without, predicted->curve().at(largest));
  return std::optional(with.expected / without.throughput_tokens_per_second.expected);
}

std::optional<bool> all_fit(int count, const std::optional<Bytes>& of_one,
                            const BatchAnswer& answer) {
  if (!of_one) return std::nullopt;
  const auto memory = static_cast<double>(answer.question.device->usable_memory.value.count);
  return static_cast<double>(of_one->count) * count <= timing::kMemoryShare * memory;
}

Replicas replicas_of(int count, Sharing sharing, const BatchAnswer& answer) {
  const BatchPoint& chosen = chosen_of(answer);
  const double most = answer.curve[answer.largest].point.throughput_tokens_per_second.expected;
  const double share = chosen.throughput_tokens_per_second.expected / most;
  // One server's worth is never lost by the model: below 1 only what was measured goes.
  const Interval& kept = sharing == Sharing::mps ? kMpsKeeps : kTimeSlicingKeeps;
  const auto network = [&](double gap) { return replication_speedup(count, gap); };
  const Interval& gap = *answer.host_gap;
  const Interval gain =
      product(kept, Interval{network(gap.low), network(gap.expected), network(gap.high)});
  const Interval& itl = chosen.itl_seconds;
  Replicas made;
  made.count = count;
  made.sharing = sharing;
  made.speedup_vs_single = gain;
  made.speedup_vs_max = product(gain, share);
  made.itl_seconds = {itl.low * count / gain.high, itl.expected * count / gain.expected,
                      itl.high * count / gain.low};
  made.meets_target = meets(made.itl_seconds.expected, answer.itl_target_seconds);
  return made;
}

}  // namespace

std::optional<Bytes> memory_of_server(const Predicted* predicted, const BatchAnswer& answer) {
  const auto& device = answer.question.device;
  const bool is_known = predicted != nullptr && answer.kv.needed && device &&
                        device->usable_memory.known() && device->usable_memory.value.count > 0;
  if (!is_known) return std::nullopt;
  return predicted->predictor().weights() + *answer.kv.needed + device->context.value.expected;
}

Interval throughput_of(const Replicas& replicas, const BatchAnswer& answer) {
  return product(chosen_of(answer).throughput_tokens_per_second, replicas.speedup_vs_single);
}

const Replicas* replicas_to_start(const BatchAnswer& answer) {
  constexpr double kWorthIt = 1.01;
  double most = 0;
  for (const CurveRow& row : answer.curve) {
    if (!meets(row.point.itl_seconds.expected, answer.itl_target_seconds).value_or(true)) continue;
    most = std::max(most, row.point.throughput_tokens_per_second.expected);
  }
  const Replicas* best = nullptr;
  for (const Replicas& replicas : answer.replicas) {
    if (replicas.sharing != Sharing::mps || !replicas.fits.value_or(false)) continue;
    if (!replicas.meets_target.value_or(true)) continue;
    const double rate = throughput_of(replicas, answer).expected;
    if (!(rate > kWorthIt * most)) continue;
    most = rate;
    best = &replicas;
  }
  return best;
}

Result<void> fill_replicas(const Predicted* predicted, BatchAnswer& answer) {
  const auto& own = answer.question.device;
  if (!shares_one_gpu(answer) || (own && own->vendor == device::Vendor::cpu)) return {};
  if (!answer.host_gap) {
    answer.notes.emplace_back(kNoHostGap);
    return {};
  }
  HEADROOM_ASSIGN(const std::optional<double> chunked, chunked_gain(predicted, answer));
  const std::optional<Bytes> of_one = memory_of_server(predicted, answer);
  for (int count = 2; count <= answer.question.most_replicas; ++count) {
    for (const Sharing sharing : {Sharing::mps, Sharing::time_slicing}) {
      // NVIDIA's alone.
      if (sharing == Sharing::mps && own && own->vendor != device::Vendor::nvidia) continue;
      Replicas made = replicas_of(count, sharing, answer);
      made.fits = all_fit(count, of_one, answer);
      if (chunked) made.speedup_vs_chunked = product(made.speedup_vs_max, 1 / *chunked);
      answer.replicas.push_back(made);
    }
  }
  return {};
}

}  // namespace headroom::batch
