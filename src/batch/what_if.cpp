#include "batch/what_if.h"

#include <algorithm>
#include <array>

#include "base/parallel.h"
#include "text/number.h"

namespace headroom::batch {
namespace {

using timing::DecodeVariant;

struct Variation {
  std::string name;
  bool is_other_model = false;
  DecodeVariant variant;
};

// DeepSeek-V2's latent (512) and its rotary part (64); arXiv 2405.04434.
constexpr int64_t kLatent = 576;
constexpr int64_t kWindow = 4096;  // Mistral-7B's; arXiv 2310.06825
// Decode attention of the memory-gap paper's engines beside the bandwidth of their board, at the
// maximum batch of four models (arXiv 2503.08311, its repository's profiles).
constexpr std::array<double, 3> kGoodAttention{0.87, 0.90, 0.92};

// Those that make a difference to this model.
std::vector<Variation> variations_of(const BatchQuestion& question, const Workload& workload,
                                     const timing::DecodePredictor& predictor) {
  const DecodeVariant& own = question.variant;
  const auto element = static_cast<double>(op::element_size(question.weights));
  std::vector<Variation> all;
  const auto add = [&](std::string name, bool is_other_model) -> DecodeVariant& {
    all.push_back({std::move(name), is_other_model, own});
    return all.back().variant;
  };
  const double cache = own.cache_element_bytes.value_or(element);
  if (cache > 1) add("cache in fp8", false).cache_element_bytes = 1;
  if (cache > 0.5) add("cache in int4", false).cache_element_bytes = 0.5;
  // One step away from what is asked: int4 is unpacked before it is multiplied, so that fp8, which
  // is not, may be faster; of 8 bits all are alike here, and of fp4 is less than all.
  const double weights = own.weight_element_bytes.value_or(element);
  const bool is_unpacked = own.weight_element_bytes && !own.product_rate;
  if (weights > 1 || is_unpacked) {
    DecodeVariant& eight = add("weights in fp8", false);
    eight.weight_element_bytes = 1;
    eight.product_rate = device::Rate::fp8;
  }
  if (weights > timing::kInt4Bytes) {
    DecodeVariant& four = add("weights in int4", false);
    four.weight_element_bytes = timing::kInt4Bytes;
    four.product_rate.reset();  // unpacked before they are multiplied
  }
  if (!own.attention_share && question.device->vendor != device::Vendor::cpu) {
    add("attention at 87-92 % of bandwidth", false).attention_share = kGoodAttention;
  }
  const int64_t groups = std::max<int64_t>(1, predictor.heads() / 8);
  if (!own.kv_heads && !own.latent && predictor.kv_heads() > groups) {
    const std::string heads = std::to_string(groups);
    add("GQA, " + heads + (groups == 1 ? " key-value head" : " key-value heads"), true).kv_heads =
        groups;
  }
  if (!own.latent && !predictor.has_latent_attention() &&
      2 * predictor.kv_heads() * predictor.head_dim() > kLatent) {
    add("MLA, a latent of " + std::to_string(kLatent), true).latent = kLatent;
  }
  if (!own.window && workload.context_mean > static_cast<double>(kWindow)) {
    add("a window of " + std::to_string(kWindow) + " tokens", true).window = kWindow;
  }
  return all;
}

using Ends = std::array<std::optional<PredictedBest>, 3>;

// From the least to the largest of those at the ends of the law.
Interval gain_of(const Ends& varied, const Ends& base, double expected) {
  Interval gain{expected, expected, expected};
  for (size_t end = 0; end < varied.size(); ++end) {
    if (!varied[end] || !base[end]) continue;
    const double ratio = varied[end]->point.throughput_tokens_per_second.expected /
                         base[end]->point.throughput_tokens_per_second.expected;
    gain.low = std::min(gain.low, ratio);
    gain.high = std::max(gain.high, ratio);
  }
  return gain;
}

void set_needed(const Predicted& varied, const Workload& workload, double running, WhatIf& what) {
  const auto cache = static_cast<double>(varied.cache().count);
  what.kv_needed_bytes = kv_tokens_needed(running, workload) * varied.bytes_of_token();
  if (cache > 0) what.kv_needed_bytes = std::min(what.kv_needed_bytes, cache);
  what.kv_freed_bytes = std::max(0.0, cache - what.kv_needed_bytes);
}

Result<void> fill_closed(const Baseline& base, const Predicted& varied, const PredictedBest& own,
                         const Ends& own_ends, WhatIf& what) {
  HEADROOM_ASSIGN(const auto best, best_of(varied, base.advisor, base.correction));
  HEADROOM_ASSIGN(const Ends ends, best_at_ends(varied, base.advisor, base.correction));
  if (!best) return {};
  what.advice = best->advice;
  what.throughput_tokens_per_second = best->point.throughput_tokens_per_second;
  what.itl_seconds = best->point.itl_seconds;
  what.speedup = gain_of(
      ends, own_ends,
      what.throughput_tokens_per_second.expected / own.point.throughput_tokens_per_second.expected);
  set_needed(varied, base.workload, best->point.running, what);
  return {};
}

Result<void> fill_load(const Baseline& base, const Predicted& varied, WhatIf& what) {
  HEADROOM_ASSIGN(what.load,
                  load_of(*base.question, base.workload, varied, base.correction, *base.load));
  what.speedup = gain_over(base.load->best, *what.load);
  set_needed(varied, base.workload, static_cast<double>(what.load->limit), what);
  return {};
}

}  // namespace

Result<std::vector<WhatIf>> what_ifs(const Baseline& base, const Predicted& predicted,
                                     const timing::TimingModel& model) {
  const BatchQuestion& question = *base.question;
  HEADROOM_ASSIGN(const auto own, best_of(predicted, base.advisor, base.correction));
  if (!own) return std::vector<WhatIf>();
  HEADROOM_ASSIGN(const Ends own_ends, best_at_ends(predicted, base.advisor, base.correction));
  const auto variations = variations_of(question, base.workload, predicted.predictor());
  std::vector<WhatIf> all(variations.size());
  std::vector<Result<void>> done(variations.size());
  for_each_in_parallel(variations.size(), 0, [&](size_t i) {
    const Variation& one = variations[i];
    all[i].name = one.name;
    all[i].is_other_model = one.is_other_model;
    const timing::DecodeOptions decode{.context = mean_context(base.workload),
                                       .weights = question.weights,
                                       .variant = one.variant};
    const auto varied =
        Predicted::make(*base.config, *question.device, decode, base.workload, model);
    if (!varied) {
      done[i] = varied.error();
    } else if (base.load && !varied->curve().candidates().empty()) {
      done[i] = fill_load(base, *varied, all[i]);
    } else if (!base.load) {
      done[i] = fill_closed(base, *varied, *own, own_ends, all[i]);
    }
  });
  for (const Result<void>& one : done) HEADROOM_TRY(one);
  return all;
}

}  // namespace headroom::batch
