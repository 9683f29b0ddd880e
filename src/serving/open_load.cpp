#include "serving/open_load.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "base/check.h"
#include "serving/prompt.h"
#include "text/number.h"

namespace headroom::serving {
namespace {

// Of what came in a window, how much more than what ended in it says that the load is too high.
constexpr double kMostBacklog = 0.05;

LatencySpread spread_of_gaps(const LatencyHistogram& gaps) {
  return {gaps.count(),        gaps.mean(),         gaps.quantile(0.50),
          gaps.quantile(0.90), gaps.quantile(0.95), gaps.quantile(0.99)};
}

// Of one request; nothing where a single token has no time between tokens.
std::optional<double> value_of(const OpenRequest& request, LatencyMetric metric) {
  switch (metric) {
    case LatencyMetric::ttft:
      return request.first_token - request.arrived;
    case LatencyMetric::e2e:
      return request.ended - request.arrived;
    case LatencyMetric::itl:
    case LatencyMetric::tpot:
      break;
  }
  const int64_t between = metric == LatencyMetric::itl ? request.gaps : request.tokens - 1;
  if (between < 1) return std::nullopt;
  return (request.ended - request.first_token) / static_cast<double>(between);
}

// Tokens that it had written in [begin, end): the first at its time, the others evenly until its
// end.
double tokens_within(const OpenRequest& request, double begin, double end) {
  const auto tokens = static_cast<double>(request.tokens);
  const bool has_first = request.first_token >= begin && request.first_token < end;
  const double lasted = request.ended - request.first_token;
  if (!(lasted > 0)) return has_first ? tokens : 0;
  const double within = std::min(request.ended, end) - std::max(request.first_token, begin);
  return (has_first ? 1 : 0) + (tokens - 1) * std::max(0.0, within) / lasted;
}

bool is_met(const OpenRequest& request, const LatencyTarget& target) {
  if (target.metric == LatencyMetric::itl && target.percentile > 0) {
    const double rest = 1 - target.percentile / 100;
    return static_cast<double>(request.late_gaps) <=
           rest * static_cast<double>(request.gaps) + 1e-9;
  }
  const auto value = value_of(request, target.metric);
  return !value || *value <= target.seconds;
}

bool meets_all(const OpenRequest& request, const OpenLoadGoal& goal) {
  return request.is_answered &&
         std::all_of(goal.targets.begin(), goal.targets.end(),
                     [&](const LatencyTarget& target) { return is_met(request, target); });
}

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

// What the requests of a load are like, as those that are in an engine together feel it.
struct Mix {
  double output = 0;   // tokens of a request
  double prompt = 0;   // the same
  double context = 0;  // tokens that one in flight holds
};

Mix mix_of(const Arrivals& arrivals) {
  Mix mix;
  const auto count = static_cast<double>(arrivals.requests.size());
  for (const ArrivingRequest& request : arrivals.requests) {
    const auto in = static_cast<double>(request.input_tokens);
    const auto out = static_cast<double>(request.output_tokens);
    mix.output += out / count;
    mix.prompt += in / count;
    mix.context += out * (in + out / 2) / count;
  }
  mix.context /= mix.output;
  return mix;
}

// So many in flight answer as many requests as come: n / (O (D(n) + prompts)) = rate. The limit
// where even that many answer fewer.
int64_t in_flight_at(double requests_per_second, const Mix& mix, const IterationLaw& law,
                     const EngineLimits& limits) {
  const Speculation& speculation = limits.speculation;
  const auto answers = [&](int64_t n) {
    const auto sequences = static_cast<double>(n);
    const IterationWork work{n, n * (1 + speculation.draft_tokens),
                             static_cast<int64_t>(sequences * mix.context)};
    const double tokens = speculation.tokens_per_step();
    const PromptsMet met{sequences * tokens / mix.output, mix.prompt, work.rows};
    const double seconds =
        decode_seconds(law, speculation, work) +
        mean_seconds_in_pieces(law.prompts(), met, limits.max_num_batched_tokens);
    return sequences * tokens / (seconds * mix.output);
  };
  int64_t low = 0;
  int64_t high = limits.max_num_seqs;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (answers(middle) < requests_per_second ? low : high) = middle;
  }
  return answers(high) < requests_per_second ? high : low;
}

// Before all others so many that are in the middle of their answers. What they wrote counts as
// prompt. Their hashes, if others have some, are none.
Arrivals met_at_work(const Arrivals& arrivals, int64_t in_flight) {
  std::vector<double> written;  // of all requests up to each
  double total = 0;
  for (const ArrivingRequest& request : arrivals.requests) {
    total += static_cast<double>(request.output_tokens);
    written.push_back(total);
  }
  std::mt19937_64 random(mixed(static_cast<uint64_t>(arrivals.requests.size())));
  Arrivals met;
  met.hash_tokens = arrivals.hash_tokens;
  for (int64_t i = 0; i < in_flight; ++i) {
    const auto at = std::upper_bound(written.begin(), written.end(), uniform(random) * total);
    const auto index = std::min(static_cast<size_t>(at - written.begin()), written.size() - 1);
    ArrivingRequest request = arrivals.requests[index];
    const auto before =
        static_cast<int64_t>(uniform(random) * static_cast<double>(request.output_tokens));
    request.seconds = 0;
    request.input_tokens += before;
    request.output_tokens -= before;  // less than all of them
    met.requests.push_back(request);
    if (!arrivals.first_hash.empty()) met.first_hash.push_back(0);
  }
  met.requests.insert(met.requests.end(), arrivals.requests.begin(), arrivals.requests.end());
  met.first_hash.insert(met.first_hash.end(), arrivals.first_hash.begin(),
                        arrivals.first_hash.end());
  met.hashes = arrivals.hashes;
  return met;
}

}  // namespace

std::string_view name_of(LatencyMetric metric) {
  constexpr std::array<std::string_view, kLatencyMetrics> kNames = {"ttft", "itl", "tpot", "e2e"};
  return kNames[static_cast<size_t>(metric)];
}

std::string name_of(const LatencyTarget& target) {
  std::string name(name_of(target.metric));
  return name + (target.percentile > 0 ? text::formatted("_p%.6g", target.percentile) : "_mean");
}

LatencySpread spread_of(std::vector<double> values) {
  LatencySpread spread;
  spread.count = static_cast<int64_t>(values.size());
  if (values.empty()) return spread;
  std::sort(values.begin(), values.end());
  for (const double value : values) spread.mean += value / static_cast<double>(values.size());
  spread.p50 = nearest_rank(values, 0.50);
  spread.p90 = nearest_rank(values, 0.90);
  spread.p95 = nearest_rank(values, 0.95);
  spread.p99 = nearest_rank(values, 0.99);
  return spread;
}

double OpenLoadGoal::late_gap_seconds() const {
  for (const LatencyTarget& target : targets) {
    if (target.metric == LatencyMetric::itl && target.percentile > 0) return target.seconds;
  }
  return std::numeric_limits<double>::infinity();
}

OpenLoadSummary summarise_open(const std::vector<OpenRequest>& requests, size_t from, size_t to,
                               double window_end, const LatencyHistogram& gaps,
                               const OpenLoadGoal& goal) {
  HEADROOM_CHECK(from < to && to <= requests.size(), "requests to be summed up");
  OpenLoadSummary summary;
  summary.requests = static_cast<int64_t>(to - from);
  const double begin = requests[from].arrived;
  summary.window_seconds = std::max(window_end - begin, 1e-9);
  std::array<std::vector<double>, kLatencyMetrics> values;
  int64_t good = 0;
  double asked = 0;  // tokens, of those that were answered
  for (size_t i = from; i < to; ++i) {
    const OpenRequest& request = requests[i];
    good += meets_all(request, goal) ? 1 : 0;
    if (!request.is_answered) {
      ++summary.unanswered;
      continue;
    }
    asked += static_cast<double>(request.tokens);
    for (const LatencyMetric metric :
         {LatencyMetric::ttft, LatencyMetric::tpot, LatencyMetric::e2e}) {
      const auto value = value_of(request, metric);
      if (value) values[static_cast<size_t>(metric)].push_back(*value);
    }
  }
  for (std::vector<double>& of_metric : values) std::sort(of_metric.begin(), of_metric.end());
  for (size_t i = 0; i < kLatencyMetrics; ++i) {
    const bool is_itl = static_cast<LatencyMetric>(i) == LatencyMetric::itl;
    summary.spread[i] = is_itl ? spread_of_gaps(gaps) : spread_of(values[i]);
  }
  // Parts of requests count: far above what a server can do the window is shorter than one.
  double ended = 0;
  double tokens = 0;
  for (const OpenRequest& request : requests) {
    if (!request.is_answered) continue;
    tokens += tokens_within(request, begin, window_end);
    if (request.ended >= begin && request.ended < window_end) ended += 1;
  }
  const auto came = static_cast<double>(summary.requests - summary.unanswered);
  summary.requests_per_second = static_cast<double>(summary.requests) / summary.window_seconds;
  summary.throughput_requests_per_second =
      asked > 0 ? tokens * came / asked / summary.window_seconds : 0;
  summary.throughput_tokens_per_second = tokens / summary.window_seconds;
  summary.attained = static_cast<double>(good) / static_cast<double>(summary.requests);
  summary.goodput_requests_per_second = static_cast<double>(good) / summary.window_seconds;
  summary.is_saturated = ended < (1 - kMostBacklog) * came;
  if (summary.is_saturated) {  // no more can be good than are answered as fast as they come
    summary.goodput_requests_per_second = summary.attained * summary.throughput_requests_per_second;
  }
  summary.meets_targets = came > 0;
  for (const LatencyTarget& target : goal.targets) {
    const auto metric = static_cast<size_t>(target.metric);
    const LatencySpread& spread = summary.spread[metric];
    const double share = target.percentile / 100;
    const bool is_itl = target.metric == LatencyMetric::itl;
    summary.at_targets.push_back(target.percentile <= 0 ? spread.mean
                                 : is_itl               ? gaps.quantile(share)
                                                        : nearest_rank(values[metric], share));
    if (!goal.attain && summary.at_targets.back() > target.seconds) summary.meets_targets = false;
  }
  if (goal.attain && summary.attained < *goal.attain) summary.meets_targets = false;
  summary.is_kept = summary.meets_targets && !summary.is_saturated;
  return summary;
}

Arrivals poisson_arrivals(const std::vector<formats::RequestLengths>& lengths, size_t count,
                          uint64_t seed) {
  HEADROOM_CHECK(!lengths.empty(), "requests have lengths");
  std::mt19937_64 random(mixed(seed));
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i % lengths.size();
  const auto below = [&](size_t most) {
    return std::min(static_cast<size_t>(uniform(random) * static_cast<double>(most)), most - 1);
  };
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[below(i)]);
  Arrivals arrivals;
  double at = 0;
  for (const size_t drawn : order) {
    at -= std::log1p(-uniform(random));
    const formats::RequestLengths& request = lengths[drawn];
    arrivals.requests.push_back(
        {at, std::max<int64_t>(1, request.input_tokens), request.output_tokens});
  }
  return arrivals;
}

Arrivals recorded_arrivals(const std::vector<formats::RequestLengths>& requests,
                           const formats::RequestTimes& times, size_t count) {
  HEADROOM_CHECK(requests.size() >= 2 && times.arrived_seconds.size() == requests.size(),
                 "each request has a time");
  const size_t all = requests.size();
  const double last = times.arrived_seconds.back();
  const double lap_seconds = last + last / static_cast<double>(all - 1);
  const bool has_hashes = !times.first_hash.empty();
  Arrivals arrivals;
  if (has_hashes) arrivals.hash_tokens = times.hash_tokens;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i % all;
    const size_t lap = i / all;
    arrivals.requests.push_back({times.arrived_seconds[at] + lap_seconds * static_cast<double>(lap),
                                 std::max<int64_t>(1, requests[at].input_tokens),
                                 requests[at].output_tokens});
    if (!has_hashes) continue;
    arrivals.first_hash.push_back(arrivals.hashes.size());
    for (size_t k = times.first_hash[at]; k < times.first_hash[at + 1]; ++k) {
      const uint64_t hash = times.hashes[k];
      arrivals.hashes.push_back(lap == 0 ? hash : mixed(hash ^ mixed(lap)));
    }
  }
  if (has_hashes) arrivals.first_hash.push_back(arrivals.hashes.size());
  return arrivals;
}

SimulatedLoad simulate_load(const OpenLoad& load, double requests_per_second,
                            const IterationLaw& law, const EngineLimits& limits,
                            const OpenLoadGoal& goal) {
  HEADROOM_CHECK(requests_per_second > 0, "a rate");
  const int64_t at_work =
      load.is_met_at_work ? in_flight_at(requests_per_second, mix_of(load.arrivals), law, limits)
                          : 0;
  const Arrivals arrivals = met_at_work(load.arrivals, at_work);
  SimulationOptions options;
  options.stretch = load.natural_rate / requests_per_second;
  options.late_gap_seconds = goal.late_gap_seconds();
  options.from = load.from + static_cast<size_t>(at_work);
  options.to = load.to + static_cast<size_t>(at_work);
  const SimulatedRun run = simulate(arrivals, law, limits, options);
  std::vector<OpenRequest> requests;
  requests.reserve(run.requests.size());
  for (const RequestOutcome& outcome : run.requests) {
    requests.push_back({outcome.arrived, outcome.first_token, outcome.ended, outcome.output_tokens,
                        outcome.gaps, outcome.late_gaps, outcome.is_ended});
  }
  // Until the next one comes, or where there is none, as long as one takes to come.
  const auto& all = load.arrivals.requests;
  const double end =
      load.to < all.size() ? all[load.to].seconds : all.back().seconds + 1 / load.natural_rate;
  SimulatedLoad result;
  result.summary =
      summarise_open(requests, options.from, options.to, end * options.stretch, run.gaps, goal);
  result.in_batch_mean = run.seconds > 0 ? run.in_batch_seconds / run.seconds : 0;
  result.kv_most_share =
      static_cast<double>(run.most_blocks) / static_cast<double>(limits.kv_blocks);
  result.preemptions = run.preemptions;
  if (run.decodes > 0) {
    result.tokens_per_step =
        static_cast<double>(run.decoded_tokens) / static_cast<double>(run.decodes);
  }
  const auto prompts = static_cast<double>(run.prompt_tokens_computed + run.prompt_tokens_cached);
  if (prompts > 0) {
    result.prompt_hit_share = static_cast<double>(run.prompt_tokens_cached) / prompts;
  }
  return result;
}

double closed_loop_rate(const OpenLoad& load, int64_t in_flight, const IterationLaw& law,
                        const EngineLimits& limits) {
  SimulationOptions options;
  options.closed_loop = in_flight;
  const size_t from = load.from + static_cast<size_t>(in_flight);
  options.to = load.to + static_cast<size_t>(in_flight);
  const SimulatedRun run = simulate(met_at_work(load.arrivals, in_flight), law, limits, options);
  // One begins where another has ended. Up to where the last of them began all were in flight.
  const double begin = run.requests[from].arrived;
  const double end = run.requests[options.to - 1].arrived;
  return end > begin ? static_cast<double>(load.to - 1 - load.from) / (end - begin) : 0;
}

double highest_rate(double most, double near, const std::function<bool(double)>& keeps) {
  constexpr double kPrecision = 1.005;
  double low = most / 1000;
  double high = most;
  if (near > low && near < most) {
    // Away from there in steps that double, until it lies between.
    double step = 1.02;
    const bool is_above = keeps(near);
    (is_above ? low : high) = near;
    while (is_above ? low < most : high > most / 1000) {
      const double next = std::clamp(is_above ? near * step : near / step, most / 1000, most);
      const bool is_kept = keeps(next);
      (is_kept ? low : high) = next;
      if (is_kept != is_above) break;
      step *= step;
    }
    if (is_above && low >= most) return most;
    if (!is_above && high <= most / 1000) return 0;
  } else {
    if (keeps(most)) return most;
    if (!keeps(low)) return 0;
  }
  while (high > kPrecision * low) {
    const double middle = high > 4 * low ? std::sqrt(low * high) : (low + high) / 2;
    (keeps(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace headroom::serving
