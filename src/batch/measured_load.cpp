#include "batch/measured_load.h"

#include <algorithm>
#include <cmath>

#include "batch/batch.h"
#include "batch/open_load.h"
#include "serving/server.h"
#include "text/number.h"

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
  const double count = std::ceil(1.2 * rate * (end + kDrainSeconds)) + 10 + kFewest;
  const double expected = rate * window_seconds;
  if (!(expected >= kFewest)) {
    return Error{ErrorCode::usage,
                 text::formatted("%.3g requests come in the window, ", expected) +
                     "too few to say anything of percentiles",
                 "--window", "seconds for a hundred requests at this rate, or more"};
  }
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
  // Where fewer come than are expected, the window lasts until enough have.
  plan.to = std::max(first_at(end), plan.from + kFewest);
  if (plan.to <= requests.size()) return plan;
  return Error{ErrorCode::usage, "nearly all requests of the trace come at its beginning", "--rate",
               "a longer --window, which has a longer time before it"};
}

}  // namespace

// Twice the rate as long as it is kept; then the middle, by ratio, of what is kept and what is not.
RateSearch search_rate(const LiveQuestion& live,
                       const std::function<Result<RateVerdict>(double)>& run,
                       std::optional<Error>& error) {
  const auto began = serving::Clock::now();
  const auto is_late = [&] {
    return std::chrono::duration<double>(serving::Clock::now() - began).count() > live.most_seconds;
  };
  RateSearch search;
  // Half as many again as a window has to have.
  double rate = 1.5 * static_cast<double>(kFewest) / live.window_seconds;
  for (int i = 0; i < RateSearch::kMostRuns; ++i) {
    if (search.kept && search.missed && *search.missed <= RateSearch::kNear * *search.kept) {
      return search;
    }
    if (i > 0 && is_late()) break;
    const Result<RateVerdict> verdict = run(rate);
    if (!verdict) {
      error = verdict.error();
      break;
    }
    if (*verdict == RateVerdict::is_void) {
      search.is_void = rate;
      break;
    }
    (*verdict == RateVerdict::kept ? search.kept : search.missed) = rate;
    // Below it too few come in a window.
    if (!search.kept) return search;
    rate = search.missed ? std::sqrt(*search.kept * *search.missed) : 2 * rate;
  }
  search.is_stopped = true;
  return search;
}

namespace {

Result<serving::Server> probed(serving::HttpStreams& streams, const LiveQuestion& live,
                               const BatchQuestion& question,
                               const std::vector<formats::RequestLengths>& lengths) {
  double input = 0;
  for (const formats::RequestLengths& request : lengths) {
    input += static_cast<double>(request.input_tokens) / static_cast<double>(lengths.size());
  }
  return serving::probe_server(streams, {.endpoint = live.endpoint,
                                         .model = live.served_model,
                                         .api_key = live.api_key,
                                         .seed = question.open_load.seed,
                                         .input_tokens = std::llround(input)});
}

// One rate, on a server that was probed.
class RateMeter {
 public:
  RateMeter(serving::HttpStreams& streams, const serving::Server& server, const LiveQuestion& live,
            const BatchQuestion& question, LoadRecord& record)
      : streams_(&streams), server_(&server), live_(&live), question_(&question), record_(&record) {
    goal_ = {record.targets, question.open_load.attain};
    lengths_ = lengths_of(question);
  }

  // A search goes on where a server that answered before answers nothing: that rate is missed.
  Result<serving::MeasuredLoad> measure(double rate) {
    HEADROOM_ASSIGN(serving::OpenLoadPlan plan,
                    plan_of(*question_, lengths_, rate, live_->window_seconds));
    plan.prefix_share = live_->prefix_hit;
    serving::MeasuredLoad load;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const serving::OpenLoadRun run = serving::run_open_load(*streams_, *server_, plan);
      auto summary = serving::summarise(run, goal_);
      const bool goes_on = question_->open_load.is_search && !record_->loads.empty() &&
                           !serving::is_unreachable(run);
      if (!summary && !goes_on) {
        Error error = std::move(summary).error();
        error.where = live_->endpoint.base;
        return error;
      }
      load = summary ? *std::move(summary) : serving::unanswered(run);
      ++plan.seed;  // prompts that no cache has
      if (!load.is_void) break;
    }
    load.asked_requests_per_second = rate;
    return load;
  }

 private:
  serving::HttpStreams* streams_;
  const serving::Server* server_;
  const LiveQuestion* live_;
  const BatchQuestion* question_;
  const LoadRecord* record_;
  serving::OpenLoadGoal goal_;
  std::vector<formats::RequestLengths> lengths_;
};

}  // namespace

Result<LoadRecord> measure_open_load(
    const LiveQuestion& live, const BatchQuestion& question,
    const std::function<void(const serving::MeasuredLoad&)>& on_measured) {
  HEADROOM_TRY(check_workload(question));
  HEADROOM_TRY(check_open_load(question.open_load));
  if (live.prefix_hit > 0 && !question.open_load.times.hashes.empty()) {
    return Error{ErrorCode::usage, "the trace says itself which prompts begin alike",
                 "--prefix-hit", "it without --prefix-hit"};
  }
  const serving::Clock::time_point began = serving::Clock::now();
  HEADROOM_ASSIGN(const auto streams, serving::HttpStreams::make());
  HEADROOM_ASSIGN(const serving::Server server,
                  probed(*streams, live, question, lengths_of(question)));
  LoadRecord record{.url = live.endpoint.base,
                    .api = std::string(name_of(server.api)),
                    .served_model = server.model,
                    .prefix_hit = live.prefix_hit,
                    .targets = question.open_load.targets,
                    .loads = {},
                    .seconds = 0};
  if (question.slo && question.slo->seconds) {
    record.targets.push_back({serving::LatencyMetric::itl, 0, *question.slo->seconds});
  }
  RateMeter meter(*streams, server, live, question, record);
  const auto run = [&](double rate) -> Result<RateVerdict> {
    HEADROOM_ASSIGN(serving::MeasuredLoad load, meter.measure(rate));
    on_measured(load);
    record.loads.push_back(std::move(load));
    const serving::MeasuredLoad& kept = record.loads.back();
    if (kept.is_void) return RateVerdict::is_void;
    return kept.summary.is_kept ? RateVerdict::kept : RateVerdict::missed;
  };
  if (question.open_load.is_search) {
    record.search = search_rate(live, run, record.error);
  } else {
    std::vector<double> rates = question.open_load.rates;
    if (rates.empty()) rates.push_back(recorded_rate(question.open_load.times));
    for (const double rate : rates) {
      const Result<RateVerdict> made = run(rate);
      if (made) continue;
      record.error = made.error();
      break;
    }
  }
  if (record.loads.empty() && record.error) return *std::move(record.error);
  std::ranges::stable_sort(record.loads, {}, &serving::MeasuredLoad::asked_requests_per_second);
  record.seconds = std::chrono::duration<double>(serving::Clock::now() - began).count();
  return record;
}

}  // namespace headroom::batch
