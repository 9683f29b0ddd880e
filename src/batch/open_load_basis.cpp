#include <algorithm>
#include <array>
#include <cmath>

#include "batch/live_meter.h"
#include "batch/open_load.h"
#include "engines/serving_engine.h"
#include "text/number.h"

namespace headroom::batch {
namespace {

using serving::DecodeKnot;
using serving::IterationLaw;
using serving::PrefillLaw;
using timing::TimeInterval;

constexpr size_t kEnds = 3;  // low, expected, high

double end_of(const Interval& interval, size_t end) {
  return end == 0 ? interval.low : end == 1 ? interval.expected : interval.high;
}

double end_of(const TimeInterval& interval, size_t end) {
  return end_of(Interval{interval.low_seconds, interval.seconds, interval.high_seconds}, end);
}

using Prompts = std::array<PrefillLaw, kEnds>;  // not known: nothing is

// So many prompts' tokens in a second of nothing else, as the user has measured it.
Prompts given_prompts(double tokens_per_second) {
  const PrefillLaw law({{1, 1 / tokens_per_second}}, {});
  return {law, law, law};
}

// Of a prediction: steps by batch, their attention in proportion to what is cached.
Result<std::vector<std::vector<DecodeKnot>>> predicted_steps(const PredictedCurve& curve,
                                                             const std::vector<BatchPoint>& limits,
                                                             double context) {
  std::vector<std::vector<DecodeKnot>> knots(kEnds);
  for (const BatchPoint& point : limits) {
    HEADROOM_ASSIGN(const timing::DecodeStep step, curve.step(point.batch));
    const double share = step.attention.time.seconds / step.parts_seconds();
    const auto n = static_cast<double>(point.batch);
    for (size_t end = 0; end < kEnds; ++end) {
      const double seconds = end_of(step.step, end);
      knots[end].push_back({n, seconds, seconds * share / (n * context)});
    }
  }
  return knots;
}

// Of measured points: the time in which each sequence in flight gets a token. What prompts took is
// in it, and taken out again where it is known.
std::vector<std::vector<DecodeKnot>> measured_steps(const std::vector<BatchPoint>& limits,
                                                    const Prompts& prompts,
                                                    const Workload& workload, int64_t most_tokens) {
  std::vector<std::vector<DecodeKnot>> knots(kEnds);
  for (const BatchPoint& point : limits) {
    const Interval& rate = point.throughput_tokens_per_second;
    const Interval of_token{1 / rate.high, 1 / rate.expected, 1 / rate.low};
    for (size_t end = 0; end < kEnds; ++end) {
      // Points with less in flight than a smaller limit had say nothing of larger steps.
      const bool is_more =
          knots[end].empty() || point.running > 1.001 * knots[end].back().sequences;
      if (!is_more) continue;
      const serving::PromptsMet met{point.running / workload.output_mean, workload.input_mean,
                                    std::max<int64_t>(1, std::llround(point.running))};
      const double whole = point.running * end_of(of_token, end);
      knots[end].push_back(
          {point.running, whole - mean_seconds_in_pieces(prompts[end], met, most_tokens), 0});
    }
  }
  return knots;
}

bool is_positive(const std::vector<std::vector<DecodeKnot>>& knots, double least_share,
                 const std::vector<std::vector<DecodeKnot>>& whole) {
  for (size_t end = 0; end < knots.size(); ++end) {
    for (size_t i = 0; i < knots[end].size(); ++i) {
      if (!(knots[end][i].seconds > least_share * whole[end][i].seconds)) return false;
    }
  }
  return true;
}

// Tokens that a measured server's cache holds, by the share that was in use.
std::optional<double> tokens_by_share(const std::vector<BatchPoint>& limits,
                                      const Workload& workload) {
  std::optional<double> tokens;
  for (const BatchPoint& point : limits) {
    if (!point.kv_share || !(*point.kv_share > 0) || *point.kv_share > 1) continue;
    tokens = kv_tokens_needed(point.running, workload) / *point.kv_share;
  }
  return tokens;
}

// What both kinds of curve have: limits, and the requests.
Result<OpenLoadBasis> basis_of_curve(const BatchQuestion& question, const Workload& workload,
                                     const ServingCurve& curve) {
  OpenLoadBasis basis;
  for (const int64_t limit : curve.candidates()) {
    HEADROOM_ASSIGN(BatchPoint point, curve.at(limit));
    basis.limits.push_back(point);
  }
  HEADROOM_CHECK(!basis.limits.empty(), "a curve with candidates");
  basis.lengths = lengths_of(question);
  basis.context_mean = static_cast<double>(mean_context(workload));
  return basis;
}

// As they are given or, with a prediction, predicted; else nothing is known of them.
Prompts prompts_of(const BatchQuestion& question, const Predicted* predicted,
                   OpenLoadBasis& basis) {
  const auto& given = question.open_load.prefill_tokens_per_second;
  if (given) {
    basis.prompt_source = "as given by --prefill-rate";
    return given_prompts(*given);
  }
  if (predicted == nullptr) return {};
  basis.prompt_source = "predicted";
  return predicted->curve().prefill_laws();
}

void fill_laws(const std::vector<std::vector<DecodeKnot>>& steps, const Prompts& prompts,
               OpenLoadBasis& basis) {
  for (size_t end = 0; end < kEnds; ++end) {
    basis.laws.emplace_back(steps[end], basis.context_mean, prompts[end]);
  }
}

// Laws are of all limits, the choice is among those that the engine takes.
void leave_takable_limits(engines::ServingEngine engine, OpenLoadBasis& basis) {
  const auto& most = names_of(engine).most_sequences;
  if (most && basis.limits.front().batch <= *most) {
    std::erase_if(basis.limits, [&](const BatchPoint& point) { return point.batch > *most; });
  }
  basis.chosen = basis.limits.back().batch;
}

void fill_cache_blocks(double tokens, OpenLoadBasis& basis) {
  basis.kv_blocks = std::max<int64_t>(1, static_cast<int64_t>(tokens / kKvBlock));
}

// Of a server that was measured. `predicted` or null: for its prompts.
Result<OpenLoadBasis> basis_of_points(const BatchQuestion& question, const Workload& workload,
                                      const ServingCurve& curve, const Predicted* predicted) {
  HEADROOM_ASSIGN(OpenLoadBasis basis, basis_of_curve(question, workload, curve));
  Prompts prompts = prompts_of(question, predicted, basis);
  const int64_t most = question.open_load.max_num_batched_tokens;
  const auto whole = measured_steps(basis.limits, {}, workload, most);
  auto steps = measured_steps(basis.limits, prompts, workload, most);
  constexpr double kLeastShare = 0.2;
  if (!is_positive(steps, kLeastShare, whole)) {
    if (question.open_load.prefill_tokens_per_second) {
      return Error{ErrorCode::usage,
                   "prompts at this rate would take nearly all of the time that was measured",
                   "--prefill-rate",
                   "prompt tokens that the server reads in a second, when it does nothing else"};
    }
    steps = whole;
    prompts = {};
  }
  if (!prompts[0].is_known()) basis.prompt_source = "within the steps, as measured";
  fill_laws(steps, prompts, basis);
  if (const auto tokens = tokens_by_share(basis.limits, workload)) {
    fill_cache_blocks(*tokens, basis);
  }
  leave_takable_limits(question.engine, basis);
  return basis;
}

}  // namespace

std::vector<formats::RequestLengths> lengths_of(const BatchQuestion& question) {
  if (!question.requests.empty()) return question.requests;
  return drawn_lengths(question.input_tokens, question.output_tokens, question.length_variation,
                       question.open_load.seed);
}

Result<OpenLoadBasis> basis_of_prediction(const BatchQuestion& question, const Workload& workload,
                                          const Predicted& predicted,
                                          const Correction& correction) {
  HEADROOM_ASSIGN(OpenLoadBasis basis, basis_of_curve(question, workload, predicted.curve()));
  Prompts prompts = prompts_of(question, &predicted, basis);
  HEADROOM_ASSIGN(auto steps, predicted_steps(predicted.curve(), basis.limits, basis.context_mean));
  for (std::vector<DecodeKnot>& knots : steps) {
    for (DecodeKnot& knot : knots) {
      knot.seconds *= correction.itl;
      knot.seconds_per_cached_token *= correction.itl;
    }
  }
  if (!question.open_load.prefill_tokens_per_second) {  // else as it was measured
    for (PrefillLaw& law : prompts) law = law.scaled(correction.itl);
  }
  fill_laws(steps, prompts, basis);
  for (BatchPoint& point : basis.limits) point = corrected(point, correction);
  if (predicted.cache().count > 0) fill_cache_blocks(predicted.cache_tokens(), basis);
  leave_takable_limits(question.engine, basis);
  return basis;
}

Result<OpenLoadBasis> open_load_basis(const BatchQuestion& question, const Workload& workload,
                                      const ServingCurve& curve, const Predicted* predicted) {
  return question.points.empty() ? basis_of_prediction(question, workload, *predicted)
                                 : basis_of_points(question, workload, curve, predicted);
}

}  // namespace headroom::batch
