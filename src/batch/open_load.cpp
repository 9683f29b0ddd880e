#include "batch/open_load.h"

#include <algorithm>
#include <array>

#include "base/parallel.h"
#include "batch/load_simulations.h"

namespace headroom::batch {
namespace {

// What a limit keeps in one drawing of the requests scatters by some percent.
constexpr double kAsGoodInOneDrawing = 0.95;
constexpr double kAsGood = 0.98;  // of the highest rate: a smaller limit with so much is better

Error usage(std::string words, std::string flag, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(words), std::move(flag), std::move(hint)};
}

// The smallest limit whose highest rate is nearly that of the best, and what each limit could do.
// Larger ones first: what a limit can do in a closed loop bounds its rate, and where that is less
// than another's already, nothing is simulated.
int64_t best_limit(const LoadSimulations& simulations, const OpenLoadBasis& basis,
                   std::vector<OpenLoadLimit>& limits) {
  double best = 0;
  double near = 0;
  limits.clear();
  for (auto point = basis.limits.rbegin(); point != basis.limits.rend(); ++point) {
    OpenLoadLimit limit{
        .limit = point->batch,
        .closed_requests_per_second = simulations.closed_rate(*point, kExpectedEnd)};
    const double closed = limit.closed_requests_per_second;
    if (closed >= kAsGood * best) {
      near = simulations.highest_expected(point->batch, closed, near);
      limit.highest_rate = near;
      best = std::max(best, near);
    }
    limits.push_back(limit);
  }
  std::reverse(limits.begin(), limits.end());
  for (const OpenLoadLimit& limit : limits) {
    if (limit.highest_rate && best > 0 && *limit.highest_rate >= kAsGood * best) return limit.limit;
  }
  return basis.chosen;
}

// The same of one drawing, at one end of the law, without what each limit could do: one that does
// not keep the targets at nearly the best rate so far is left after that simulation.
LoadBest best_of_drawing(const LoadSimulations& simulations, const OpenLoadBasis& basis, size_t end,
                         std::optional<int64_t> usual = std::nullopt) {
  std::vector<std::pair<int64_t, double>> rates;
  double best = 0;
  for (auto point = basis.limits.rbegin(); point != basis.limits.rend(); ++point) {
    const double closed = simulations.closed_rate(*point, end);
    if (closed < kAsGoodInOneDrawing * best) continue;
    if (best > 0 && !simulations.keeps(point->batch, end, 0, kAsGoodInOneDrawing * best)) continue;
    const double highest = simulations.highest_of(point->batch, end, 0, closed, best);
    rates.emplace_back(point->batch, highest);
    best = std::max(best, highest);
  }
  LoadBest found{.limit = basis.chosen};
  for (const auto& [limit, rate] : rates) {
    if (!(best > 0) || rate < kAsGoodInOneDrawing * best) continue;
    found = {limit, {rate, rate, rate}};
    if (limit == usual) break;
  }
  return found;
}

const BatchPoint& point_at(const OpenLoadBasis& basis, int64_t limit, BatchPoint& made) {
  const auto at = std::find_if(basis.limits.begin(), basis.limits.end(),
                               [&](const BatchPoint& point) { return point.batch == limit; });
  if (at != basis.limits.end()) return *at;
  // A limit that nobody listed: what it could do at most is that of the next larger one.
  const auto above = std::find_if(basis.limits.begin(), basis.limits.end(),
                                  [&](const BatchPoint& point) { return point.batch > limit; });
  made = above != basis.limits.end() ? *above : basis.limits.back();
  made.batch = limit;
  return made;
}

// At the answer's limit; as expected what the table by limit has, where there is one.
Interval highest_rate(const LoadSimulations& simulations, const OpenLoadAnswer& answer,
                      const std::array<double, 3>& closed) {
  const auto known = std::ranges::find(answer.by_limit, answer.limit, &OpenLoadLimit::limit);
  const double expected = known != answer.by_limit.end() && known->highest_rate
                              ? *known->highest_rate
                              : simulations.highest_expected(answer.limit, closed[kExpectedEnd], 0);
  return simulations.highest_interval(answer.limit, closed, expected);
}

// Rates from an idle server to a little more than it can do.
std::vector<double> usual_rates(double highest) {
  std::vector<double> rates;
  for (const double share : {0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1}) {
    rates.push_back(share * highest);
  }
  return rates;
}

}  // namespace

double recorded_rate(const formats::RequestTimes& times) {
  return static_cast<double>(times.arrived_seconds.size() - 1) / times.arrived_seconds.back();
}

std::string_view name_of(Kept kept) {
  switch (kept) {
    case Kept::no:
      return "no";
    case Kept::at_risk:
      return "at_risk";
    case Kept::yes:
      break;
  }
  return "yes";
}

Result<void> check_open_load(const OpenLoadQuestion& question) {
  if (question.rates.size() > kMostRates) {
    return usage("20 rates at most", "--rate");
  }
  for (const double rate : question.rates) {
    if (!(rate > 0) || !(rate <= kMostRate)) {
      return usage("a rate is above 0 and at most 100000 requests a second", "--rate");
    }
  }
  if (question.attain && (!(*question.attain > 0) || !(*question.attain <= 1))) {
    return usage("it takes a share from 0 to 1", "--attain", "0.95: of the requests");
  }
  if (question.limit && (*question.limit < 1 || *question.limit > kMostLimit)) {
    return usage("a limit goes from 1 to 65536 sequences", "--limit");
  }
  if (question.max_num_batched_tokens < 1 || question.max_num_batched_tokens > 100'000'000) {
    return usage("it takes 1 to 100000000 tokens", "--max-num-batched-tokens");
  }
  const serving::Speculation& speculation = question.speculation;
  if (speculation.draft_tokens < 0 ||
      speculation.draft_tokens > serving::Speculation::kMostDrafts ||
      !(speculation.acceptance >= 0) || !(speculation.acceptance <= 1) ||
      !(speculation.draft_share >= 0) || !(speculation.draft_share <= 1)) {
    return usage("it takes up to 64 drafted tokens, and shares from 0 to 1", "--speculate",
                 "4@0.7, or 4@0.7@0.05: drafting a token takes 5 % of a decode step");
  }
  const auto& prefill = question.prefill_tokens_per_second;
  if (prefill && (!(*prefill >= 1) || !(*prefill <= 1e12))) {
    return usage("it takes tokens a second, 1 at least", "--prefill-rate");
  }
  return {};
}

Result<OpenLoadAnswer> answer_open_load(const BatchQuestion& question, const OpenLoadBasis& basis,
                                        std::optional<double> itl_target_seconds) {
  HEADROOM_TRY(check_open_load(question.open_load));
  OpenLoadAnswer answer;
  answer.targets = question.open_load.targets;
  if (itl_target_seconds) {
    answer.targets.push_back({serving::LatencyMetric::itl, 0, *itl_target_seconds});
  }
  const LoadSimulations simulations(question, basis, {answer.targets, question.open_load.attain});
  answer.prompt_source = basis.prompt_source;
  answer.knows_cache = basis.kv_blocks.has_value();
  answer.arrivals = question.open_load.is_recorded() ? "recorded" : "poisson";
  answer.requests = static_cast<int64_t>(simulations.loads()[0].to - simulations.loads()[0].from);
  answer.limit = question.open_load.limit.value_or(basis.chosen);
  if (!question.open_load.limit && !answer.targets.empty()) {
    std::array<int64_t, 3> best{};
    for_each_in_parallel(best.size(), 0, [&](size_t end) {
      best[end] = end == kExpectedEnd ? best_limit(simulations, basis, answer.by_limit)
                                      : best_of_drawing(simulations, basis, end).limit;
    });
    answer.limit = best[kExpectedEnd];
    answer.limit_low = *std::ranges::min_element(best);
    answer.limit_high = *std::ranges::max_element(best);
  }
  BatchPoint made;
  const BatchPoint& point = point_at(basis, answer.limit, made);
  std::array<double, 3> closed{};
  for (size_t end = 0; end < closed.size(); ++end)
    closed[end] = simulations.closed_rate(point, end);
  answer.closed_requests_per_second = closed[kExpectedEnd];
  answer.highest_rate = highest_rate(simulations, answer, closed);
  std::vector<double> rates = question.open_load.rates;
  const double highest = answer.highest_rate.expected;
  if (rates.empty()) {
    rates = usual_rates(highest > 0 ? highest : answer.closed_requests_per_second);
    if (question.open_load.is_recorded()) {
      answer.recorded_requests_per_second = recorded_rate(question.open_load.times);
      rates.push_back(*answer.recorded_requests_per_second);
    }
  }
  std::sort(rates.begin(), rates.end());
  answer.rows.resize(rates.size());
  for_each_in_parallel(rates.size(), 0, [&](size_t i) {
    answer.rows[i] = simulations.row(rates[i], answer.limit, closed);
  });
  answer.refused = answer.rows.front().refused;
  if (question.open_load.window_seconds && !question.open_load.is_recorded()) {
    answer.window_seconds = question.open_load.window_seconds;
    answer.runs = kSimulatedRuns;
  }
  return answer;
}

LoadBest best_of_load(const BatchQuestion& question, const OpenLoadBasis& basis,
                      const serving::OpenLoadGoal& goal, int64_t usual) {
  const LoadSimulations simulations(question, basis, goal, kOfComparison);
  LoadBest best;
  const auto& given = question.open_load.limit;
  if (given) {
    best.limit = *given;
  } else {
    best = best_of_drawing(simulations, basis, kExpectedEnd, usual);
  }
  BatchPoint made;
  const BatchPoint& point = point_at(basis, best.limit, made);
  const auto highest = [&](size_t end) {
    return simulations.highest_of(best.limit, end, 0, simulations.closed_rate(point, end),
                                  best.highest_rate.expected);
  };
  if (given) best.highest_rate.expected = highest(kExpectedEnd);
  const double ends[] = {highest(0), best.highest_rate.expected, highest(2)};
  best.highest_rate.low = *std::ranges::min_element(ends);
  best.highest_rate.high = *std::ranges::max_element(ends);
  return best;
}

}  // namespace headroom::batch
