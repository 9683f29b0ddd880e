#include "batch/measured_load.h"

#include <algorithm>
#include <cmath>

#include "batch/batch.h"
#include "batch/open_load.h"
#include "serving/server.h"

namespace headroom::batch {
namespace {

constexpr double kDrainSeconds = 60;
constexpr double kMostSent = 2e6;  // requests of a plan, and tokens that are asked for
constexpr int64_t kMostAsked = 1'000'000;
constexpr size_t kFewest = 20;  // requests in a window

// Requests at this rate for so long, of which those behind a third are wanted.
Result<serving::OpenLoadPlan> plan_of(const BatchQuestion& question,
                                      const std::vector<formats::RequestLengths>& lengths,
                                      double rate, double window_seconds) {
  const OpenLoadQuestion& open = question.open_load;
  const double begin = window_seconds / 3;
  const double end = begin + window_seconds;
  const double count = std::ceil(1.2 * rate * (end + kDrainSeconds)) + 10;
  if (!(count <= kMostSent)) {
    return Error{ErrorCode::usage, "more requests than can be sent", "--rate",
                 "a lower rate, or a shorter --window"};
  }
  serving::OpenLoadPlan plan;
  plan.seed = open.seed;
  plan.drain_seconds = kDrainSeconds;
  double natural = 1;
  if (open.is_recorded()) {
    natural = recorded_rate(open.times);
    plan.arrivals =
        serving::recorded_arrivals(question.requests, open.times, static_cast<size_t>(count));
  } else {
    plan.arrivals = serving::poisson_arrivals(lengths, static_cast<size_t>(count), open.seed);
  }
  auto& requests = plan.arrivals.requests;
  for (serving::ArrivingRequest& request : requests) {
    request.seconds *= natural / rate;
    request.input_tokens = std::min(request.input_tokens, kMostAsked);
    request.output_tokens = std::min(request.output_tokens, kMostAsked);
  }
  const auto first_at = [&](double seconds) {
    const auto at = std::lower_bound(
        requests.begin(), requests.end(), seconds,
        [](const serving::ArrivingRequest& request, double s) { return request.seconds < s; });
    return static_cast<size_t>(at - requests.begin());
  };
  plan.from = first_at(begin);
  plan.to = first_at(end);
  if (plan.to < plan.from + kFewest) {
    return Error{ErrorCode::usage,
                 std::to_string(plan.to - plan.from) +
                     " requests come in the window, too few to "
                     "say anything of percentiles",
                 "--window", "seconds for a hundred requests at this rate, or more"};
  }
  return plan;
}

}  // namespace

// Twice the rate as long as it is kept, half as long as it is not; then the middle, by ratio, of
// what is kept and what is not.
Result<RateSearch> search_rate(const LiveQuestion& live,
                               const std::function<Result<bool>(double)>& is_kept) {
  const auto began = serving::Clock::now();
  const auto is_late = [&] {
    return std::chrono::duration<double>(serving::Clock::now() - began).count() > live.most_seconds;
  };
  RateSearch search;
  // Half as many again as a window has to have.
  const double least = 1.5 * static_cast<double>(kFewest) / live.window_seconds;
  double rate = least;
  for (int i = 0; i < RateSearch::kMostRuns; ++i) {
    if (search.kept && search.missed && *search.missed <= RateSearch::kNear * *search.kept) {
      return search;
    }
    if (i > 0 && is_late()) break;
    HEADROOM_ASSIGN(const bool kept, is_kept(rate));
    (kept ? search.kept : search.missed) = rate;
    // Below it too few come in a window.
    if (!search.kept) return search;
    rate = search.missed ? std::sqrt(*search.kept * *search.missed) : 2 * rate;
  }
  search.is_stopped = true;
  return search;
}

Result<LoadRecord> measure_open_load(
    const LiveQuestion& live, const BatchQuestion& question,
    const std::function<void(const serving::MeasuredLoad&)>& on_measured) {
  HEADROOM_TRY(check_workload(question));
  HEADROOM_TRY(check_open_load(question.open_load));
  const auto lengths = lengths_of(question);
  double input = 0;
  for (const formats::RequestLengths& request : lengths) {
    input += static_cast<double>(request.input_tokens) / static_cast<double>(lengths.size());
  }
  const serving::Clock::time_point began = serving::Clock::now();
  HEADROOM_ASSIGN(const auto streams, serving::HttpStreams::make());
  HEADROOM_ASSIGN(const serving::Server server,
                  serving::probe_server(*streams, {.endpoint = live.endpoint,
                                                   .model = live.served_model,
                                                   .api_key = live.api_key,
                                                   .seed = question.open_load.seed,
                                                   .input_tokens = std::llround(input)}));
  LoadRecord record{.url = live.endpoint.base,
                    .api = std::string(name_of(server.api)),
                    .served_model = server.model,
                    .targets = question.open_load.targets,
                    .loads = {},
                    .seconds = 0};
  if (question.slo && question.slo->seconds) {
    record.targets.push_back({serving::LatencyMetric::itl, 0, *question.slo->seconds});
  }
  const serving::OpenLoadGoal goal{record.targets, question.open_load.attain};
  const auto measure = [&](double rate) -> Result<bool> {
    HEADROOM_ASSIGN(serving::OpenLoadPlan plan,
                    plan_of(question, lengths, rate, live.window_seconds));
    serving::MeasuredLoad load;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const serving::OpenLoadRun run = serving::run_open_load(*streams, server, plan);
      auto summary = serving::summarise(run, goal);
      if (!summary) {
        Error error = std::move(summary).error();
        error.where = live.endpoint.base;
        return error;
      }
      load = *std::move(summary);
      ++plan.seed;  // prompts that no cache has
      if (!load.is_void) break;
    }
    load.asked_requests_per_second = rate;
    on_measured(load);
    const bool is_kept = load.summary.is_kept && !load.is_void;
    record.loads.push_back(std::move(load));
    return is_kept;
  };
  if (question.open_load.is_search) {
    HEADROOM_ASSIGN(record.search, search_rate(live, measure));
  } else {
    std::vector<double> rates = question.open_load.rates;
    if (rates.empty()) rates.push_back(recorded_rate(question.open_load.times));
    for (const double rate : rates) HEADROOM_TRY(measure(rate));
  }
  std::ranges::stable_sort(record.loads, {}, &serving::MeasuredLoad::asked_requests_per_second);
  record.seconds = std::chrono::duration<double>(serving::Clock::now() - began).count();
  return record;
}

}  // namespace headroom::batch
