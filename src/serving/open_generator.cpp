#include "serving/open_generator.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "serving/load_summary.h"
#include "serving/prompt.h"

namespace headroom::serving {
namespace {

// Of the length that is asked for, beginning as its hashes say.
std::string prompt_of_request(const Server& server, const OpenLoadPlan& plan, size_t number) {
  const Arrivals& arrivals = plan.arrivals;
  const uint64_t seed = plan.seed;
  const PromptLaw& law = server.prompt_law;
  if (arrivals.first_hash.empty()) {
    return prompt_sharing(law, arrivals.requests[number].input_tokens, plan.prefix_share, seed,
                          number);
  }
  const int64_t words = law.words_for(arrivals.requests[number].input_tokens);
  const auto of_hash =
      static_cast<int64_t>(static_cast<double>(arrivals.hash_tokens) / law.per_word);
  return prompt_of_hashes(arrivals.hashes_of(number), of_hash, words, seed, number);
}

class OpenLoop : public RequestStream::Owner {
 public:
  OpenLoop(HttpStreams& streams, const Server& server, const OpenLoadPlan& plan)
      : plan_(plan),
        requests_{.streams = &streams, .server = &server, .stall_seconds = plan.stall_seconds} {
    run_.requests.resize(plan.arrivals.requests.size());
    run_.from = plan.from;
    run_.to = plan.to;
    left_ = plan.to - plan.from;
    for (size_t i = 0; i < run_.requests.size(); ++i) {
      run_.requests[i].scheduled = plan.arrivals.requests[i].seconds;
    }
  }
  ~OpenLoop() override {
    for (RequestStream& stream : streams_) stream.cancel();
  }
  OpenLoop(const OpenLoop&) = delete;
  OpenLoop& operator=(const OpenLoop&) = delete;

  void on_chunk(double /*at*/, double /*gap*/) override {}
  void on_done(RequestStream& stream, RequestRecord record, std::string words,
               Clock::time_point /*at*/) override {
    const auto number = static_cast<size_t>(record.slot);
    if (record.failure != Failure::none && run_.first_failure.empty()) {
      run_.first_failure = std::move(words);
    }
    run_.requests[number].record = std::move(record);
    if (number >= plan_.from && number < plan_.to) --left_;
    free_.push_back(&stream);
  }

  OpenLoadRun run();

 private:
  [[nodiscard]] double time_of(size_t request) const {
    return plan_.arrivals.requests[request].seconds;
  }
  void send(size_t number);

  const OpenLoadPlan& plan_;
  RequestRun requests_;
  OpenLoadRun run_;
  std::deque<RequestStream> streams_;  // a deque: handlers stay where they are
  std::vector<RequestStream*> free_;
  size_t next_ = 0;
  size_t left_ = 0;  // of the wanted, that have not ended
};

void OpenLoop::send(size_t number) {
  if (free_.empty()) {
    free_.push_back(&streams_.emplace_back(requests_, *this));
  }
  RequestStream* const stream = free_.back();
  free_.pop_back();
  const ArrivingRequest& request = plan_.arrivals.requests[number];
  RequestRecord record;
  record.slot = static_cast<int64_t>(number);
  record.input_asked = request.input_tokens;
  record.output_asked = request.output_tokens;
  run_.requests[number].is_sent = true;
  stream->start(std::move(record), prompt_of_request(*requests_.server, plan_, number));
}

OpenLoadRun OpenLoop::run() {
  const size_t all = plan_.arrivals.requests.size();
  const double last = plan_.to > 0 ? time_of(plan_.to - 1) : 0;
  bool has_begun = false;
  requests_.began = Clock::now();
  while (left_ > 0) {
    const double now = requests_.now();
    if (now > last + plan_.drain_seconds) break;
    while (next_ < all && time_of(next_) <= now) {
      if (streams_.size() - free_.size() >= kMostOpenRequests) break;
      send(next_++);
    }
    if (!has_begun && next_ > plan_.from) {
      requests_.streams->reset_lag();
      has_begun = true;
    }
    constexpr double kTurn = 0.05;
    const double wake = next_ < all ? std::clamp(time_of(next_), now, now + kTurn) : now + kTurn;
    requests_.streams->turn(requests_.began + std::chrono::duration_cast<Clock::duration>(
                                                  std::chrono::duration<double>(wake)));
  }
  run_.lag = requests_.streams->lag();
  // Until the next one; behind the last, as long as one takes to come on average.
  run_.window_end = plan_.to < all ? time_of(plan_.to) : last * (1 + 1 / static_cast<double>(all));
  for (const RequestStream& stream : streams_) {
    const RequestRecord* const record = stream.in_flight();
    if (record != nullptr) run_.requests[static_cast<size_t>(record->slot)].record = *record;
  }
  return std::move(run_);
}

OpenRequest outcome_of(const SentRequest& sent, double late_gap_seconds) {
  const RequestRecord& record = sent.record;
  OpenRequest request{.arrived = sent.scheduled};
  request.is_answered = record.is_finished;
  if (!record.is_finished) return request;
  request.first_token = record.arrived.front();
  request.ended = record.arrived.back();
  request.gaps = static_cast<int64_t>(record.arrived.size()) - 1;
  request.tokens = record.completion_tokens.value_or(request.gaps + 1);
  for (size_t i = 1; i < record.arrived.size(); ++i) {
    if (record.arrived[i] - record.arrived[i - 1] > late_gap_seconds) ++request.late_gaps;
  }
  return request;
}

// The generator is too slow where what it was late is so much of what it measures.
bool is_too_slow(const MeasuredLoad& load) {
  const double first_token = load.summary.of(LatencyMetric::ttft).p50;
  const double itl = load.summary.of(LatencyMetric::itl).mean;  // 0: answers of one piece
  return load.send_lag.mean > kMostLagShare * first_token ||
         (itl > 0 && load.lag.mean_seconds > kMostLagShare * itl) ||
         load.lag.busy_share > kMostBusyShare;
}

void count_failures(const OpenLoadRun& run, MeasuredLoad& load) {
  for (const SentRequest& sent : run.requests) {
    load.sent += sent.is_sent ? 1 : 0;
    if (sent.record.failure == Failure::none) continue;
    ++load.failed;
    ++load.failures[static_cast<size_t>(sent.record.failure)];
  }
  load.first_failure = run.first_failure;
  load.lag = run.lag;
}

}  // namespace

OpenLoadRun run_open_load(HttpStreams& streams, const Server& server, const OpenLoadPlan& plan) {
  HEADROOM_CHECK(plan.from < plan.to && plan.to <= plan.arrivals.requests.size(), "a window");
  return OpenLoop(streams, server, plan).run();
}

Result<MeasuredLoad> summarise(const OpenLoadRun& run, const OpenLoadGoal& goal) {
  MeasuredLoad load;
  std::vector<OpenRequest> outcomes;
  std::vector<double> lags;
  LatencyHistogram gaps;
  double answered = 0;
  double cached = 0;
  double looked_up = 0;
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const SentRequest& sent = run.requests[i];
    const RequestRecord& record = sent.record;
    outcomes.push_back(outcome_of(sent, goal.late_gap_seconds()));
    if (i < run.from || i >= run.to) continue;
    if (sent.is_sent) lags.push_back(std::max(0.0, record.began - sent.scheduled));
    if (!record.is_finished) continue;
    answered += 1;
    if (record.cached_tokens && record.prompt_tokens) {
      cached += static_cast<double>(*record.cached_tokens);
      looked_up += static_cast<double>(*record.prompt_tokens);
    }
    load.input_tokens_mean +=
        static_cast<double>(record.prompt_tokens.value_or(record.input_asked));
    load.output_tokens_mean += static_cast<double>(outcomes.back().tokens);
    for (size_t k = 1; k < record.arrived.size(); ++k) {
      gaps.add(record.arrived[k] - record.arrived[k - 1]);
    }
  }
  if (answered <= 0) {
    return Error{ErrorCode::unavailable,
                 "none of " + std::to_string(run.to - run.from) + " requests was answered" +
                     (run.first_failure.empty() ? "" : "; the first failure: " + run.first_failure),
                 {},
                 {}};
  }
  load.input_tokens_mean /= answered;
  load.output_tokens_mean /= answered;
  if (looked_up > 0) load.prefix_hit_share = std::min(1.0, cached / looked_up);
  count_failures(run, load);
  load.send_lag = spread_of(std::move(lags));
  load.summary = summarise_open(outcomes, run.from, run.to, run.window_end, gaps, goal);
  load.is_void = is_too_slow(load);
  return load;
}

MeasuredLoad unanswered(const OpenLoadRun& run) {
  MeasuredLoad load;
  count_failures(run, load);
  load.summary.requests = static_cast<int64_t>(run.to - run.from);
  load.summary.unanswered = load.summary.requests;
  load.summary.window_seconds = run.window_end - run.requests[run.from].scheduled;
  load.summary.attained = 0;
  load.summary.is_saturated = true;
  load.summary.is_kept = false;
  return load;
}

bool is_unreachable(const OpenLoadRun& run) {
  return std::ranges::all_of(run.requests, [](const SentRequest& sent) {
    return !sent.is_sent || sent.record.failure == Failure::connect;
  });
}

}  // namespace headroom::serving
