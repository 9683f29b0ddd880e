#include "serving/load.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <utility>

#include "serving/load_tally.h"
#include "serving/server_metrics.h"

namespace headroom::serving {
namespace {

using formats::RequestLengths;

constexpr double kLookSeconds = 0.1;   // between two looks at the standard errors
constexpr double kRetrySeconds = 0.2;  // of a slot whose request failed
constexpr double kMetricsSeconds = 0.5;

// Draws requests, and those that are met in the middle of their lives.
class Draws {
 public:
  Draws(const std::vector<RequestLengths>& lengths, uint64_t seed)
      : lengths_(&lengths), random_(seed) {
    for (const RequestLengths& request : lengths) {
      total_ += static_cast<double>(request.output_tokens);
      outputs_.push_back(total_);
    }
  }

  RequestLengths whole() {
    const auto at = static_cast<size_t>(uniform() * static_cast<double>(lengths_->size()));
    return (*lengths_)[std::min(at, lengths_->size() - 1)];
  }

  RequestLengths halfway() {
    const auto at = std::upper_bound(outputs_.begin(), outputs_.end(), uniform() * total_);
    const size_t index = std::min(static_cast<size_t>(at - outputs_.begin()), outputs_.size() - 1);
    RequestLengths request = (*lengths_)[index];
    const auto written =
        static_cast<int64_t>(uniform() * static_cast<double>(request.output_tokens));
    request.input_tokens += written;
    request.output_tokens = std::max<int64_t>(1, request.output_tokens - written);
    return request;
  }

 private:
  // [0, 1), the same on every system.
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }

  const std::vector<RequestLengths>* lengths_;
  std::vector<double> outputs_;  // summed up
  double total_ = 0;
  std::mt19937_64 random_;
};

// What slots share: where they send to, what they draw, and where their records go.
struct Loop {
  Loop(HttpStreams& with, const Server& of, LoadPlan by)
      : plan(std::move(by)),
        requests{.streams = &with, .server = &of, .stall_seconds = plan.stall_seconds},
        draws(plan.lengths, mixed(plan.seed)) {}

  LoadPlan plan;
  RequestRun requests;
  Draws draws;
  LoadRun run;  // of the measurement that goes on
  LoadTally tally;
  uint64_t number = 0;  // of the next request
  int64_t failed = 0;   // in this measurement
  int64_t finished = 0;

  [[nodiscard]] const Server& server() const { return *requests.server; }
  [[nodiscard]] HttpStreams& streams() const { return *requests.streams; }
  [[nodiscard]] double now() const { return requests.now(); }
  [[nodiscard]] bool has_window() const { return run.window_begin > 0; }
};

class Slot : public RequestStream::Owner {
 public:
  Slot(Loop& loop, int64_t number) : loop_(&loop), number_(number), stream_(loop.requests, *this) {}
  void on_chunk(double at, double gap) override;
  void on_done(RequestStream& stream, RequestRecord record, std::string words,
               Clock::time_point at) override;
  void start(const RequestLengths& lengths, bool is_initial);
  // Begins a request where the one before failed a moment ago.
  void retry(Clock::time_point at);
  void cancel() { stream_.cancel(); }
  // The record of a request that is still in flight.
  [[nodiscard]] const RequestRecord* in_flight() const { return stream_.in_flight(); }
  [[nodiscard]] bool has_answered() const { return has_answered_; }

 private:
  Loop* loop_;
  int64_t number_;
  RequestStream stream_;
  bool has_answered_ = false;  // a token came, ever
  std::optional<Clock::time_point> retry_at_;
};

// GET /metrics, again and again.
class MetricsReader : public HttpHandler {
 public:
  explicit MetricsReader(Loop& loop) : loop_(&loop) {}
  bool on_bytes(std::string_view bytes, long /*status*/, Clock::time_point /*at*/) override {
    body_ += bytes;
    return true;
  }
  void on_end(const HttpEnd& end, Clock::time_point at) override;
  void read_when_due();
  void cancel();

 private:
  Loop* loop_;
  bool is_open_ = false;
  HttpStreams::Id id_ = 0;
  double next_ = 0;
  std::string body_;
};

void Slot::start(const RequestLengths& lengths, bool is_initial) {
  retry_at_.reset();
  RequestRecord record;
  record.slot = number_;
  record.input_asked = lengths.input_tokens;
  record.output_asked = lengths.output_tokens;
  record.is_initial = is_initial;
  ++loop_->run.sent;
  stream_.start(std::move(record),
                prompt_sharing(loop_->server().prompt_law, lengths.input_tokens,
                               loop_->plan.prefix_share, loop_->plan.seed, loop_->number++));
}

void Slot::retry(Clock::time_point at) {
  if (retry_at_ && at >= *retry_at_) start(loop_->draws.whole(), false);
}

void Slot::on_chunk(double at, double gap) {
  has_answered_ = true;
  if (loop_->has_window()) loop_->tally.add(at - loop_->run.window_begin, gap);
}

void Slot::on_done(RequestStream& /*stream*/, RequestRecord record, std::string words,
                   Clock::time_point at) {
  const bool is_failed = record.failure != Failure::none;
  ++(is_failed ? loop_->failed : loop_->finished);
  if (is_failed && loop_->run.first_failure.empty()) loop_->run.first_failure = std::move(words);
  loop_->run.requests.push_back(std::move(record));
  if (is_failed) {
    retry_at_ = at + std::chrono::milliseconds(static_cast<int64_t>(kRetrySeconds * 1e3));
  } else {
    start(loop_->draws.whole(), false);
  }
}

void MetricsReader::on_end(const HttpEnd& end, Clock::time_point at) {
  is_open_ = false;
  if (end.fault == HttpFault::none && end.status == 200) {
    const ServerMetrics read = parse_metrics(body_);
    loop_->run.metrics.push_back({loop_->requests.seconds(at), read.running, read.waiting,
                                  read.kv_share, read.preemptions, read.prefix_queries,
                                  read.prefix_hits});
  }
  body_.clear();
}

void MetricsReader::read_when_due() {
  const double at = loop_->now();
  if (!loop_->server().has_metrics || is_open_ || at < next_) return;
  next_ = at + kMetricsSeconds;
  HttpRequest request;
  request.url = loop_->server().endpoint.metrics();
  request.api_key = loop_->server().api_key;
  request.most_seconds = 10;
  request.most_bytes = size_t{4} << 20;
  is_open_ = true;
  id_ = loop_->streams().start(request, *this);
}

void MetricsReader::cancel() {
  if (is_open_) loop_->streams().cancel(id_);
  is_open_ = false;
}

}  // namespace

class LoadGenerator::State {
 public:
  State(HttpStreams& streams, const Server& server, LoadPlan plan)
      : loop_(streams, server, std::move(plan)), metrics_(loop_) {}
  ~State() {
    for (Slot& slot : slots_) slot.cancel();
    metrics_.cancel();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<LoadRun> measure(int64_t concurrency, const LoadCare& care);

 private:
  void resize(int64_t concurrency);
  void open_window();
  [[nodiscard]] bool is_settled(double since) const;
  [[nodiscard]] bool is_over(const LoadCare& care) const;
  [[nodiscard]] bool mostly_fails() const;
  [[nodiscard]] Error failure_error() const;
  [[nodiscard]] Error silence_error() const;

  Loop loop_;
  std::deque<Slot> slots_;  // a deque: slots are handlers, and stay where they are
  MetricsReader metrics_;
};

// The newest slots go first: those that have been there longest are the farthest from their start.
void LoadGenerator::State::resize(int64_t concurrency) {
  while (static_cast<int64_t>(slots_.size()) > concurrency) {
    slots_.back().cancel();
    slots_.pop_back();
  }
  while (static_cast<int64_t>(slots_.size()) < concurrency) {
    slots_.emplace_back(loop_, static_cast<int64_t>(slots_.size()));
    slots_.back().start(loop_.draws.halfway(), true);
  }
}

void LoadGenerator::State::open_window() {
  loop_.run.window_begin = loop_.now();
  loop_.streams().reset_lag();
}

// Every slot has had a token, and the server has let go of streams that were cancelled.
bool LoadGenerator::State::is_settled(double since) const {
  if (loop_.now() < since + loop_.plan.settle_seconds) return false;
  constexpr double kMostWait = 10;
  const std::vector<MetricsSample>& metrics = loop_.run.metrics;
  const bool still_runs = !metrics.empty() && metrics.back().running.value_or(0) >
                                                  static_cast<double>(slots_.size()) + 0.5;
  if (still_runs && loop_.now() < since + kMostWait) return false;
  return std::all_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.has_answered(); });
}

// Whether the window has shown enough.
bool LoadGenerator::State::is_over(const LoadCare& care) const {
  const double seconds = loop_.now() - loop_.run.window_begin;
  if (seconds >= loop_.plan.most_seconds) return true;
  if (seconds < care.least_seconds) return false;
  const LoadTally::Errors errors = loop_.tally.errors(seconds);
  return errors.throughput <= care.precision && errors.gap <= care.precision;
}

// So many failed, and hardly one did not.
bool LoadGenerator::State::mostly_fails() const {
  const auto slots = static_cast<int64_t>(slots_.size());
  return loop_.failed >= std::clamp<int64_t>(slots, 5, 32) && loop_.failed > loop_.finished;
}

Error LoadGenerator::State::failure_error() const {
  const std::string failed = std::to_string(loop_.failed);
  const std::string ended = std::to_string(loop_.failed + loop_.finished);
  return Error{ErrorCode::unavailable,
               failed + " of " + ended + " requests failed with " + std::to_string(slots_.size()) +
                   " in flight; the first: " + loop_.run.first_failure,
               loop_.server().endpoint.base,
               {}};
}

Error LoadGenerator::State::silence_error() const {
  const std::string seconds = std::to_string(std::lround(loop_.plan.start_seconds));
  return Error{ErrorCode::unavailable,
               "no token came within " + seconds + " seconds, with " +
                   std::to_string(slots_.size()) + " requests in flight",
               loop_.server().endpoint.base,
               {}};
}

Result<LoadRun> LoadGenerator::State::measure(int64_t concurrency, const LoadCare& care) {
  HEADROOM_CHECK(concurrency >= 1 && concurrency <= kMostConcurrency, "streams");
  loop_.run = {};
  loop_.run.concurrency = concurrency;
  loop_.run.began = loop_.requests.began;
  loop_.tally = {};
  loop_.failed = loop_.finished = 0;
  const double since = loop_.now();
  // What waits to try again begins now: `failed` counts what fails from here on.
  for (Slot& slot : slots_) slot.retry(Clock::time_point::max());
  resize(concurrency);
  double next_look = 0;
  while (true) {
    const double at = loop_.now();
    if (mostly_fails()) return failure_error();
    const bool is_late = at >= since + loop_.plan.start_seconds;
    if (!loop_.has_window() && (is_settled(since) || is_late)) {
      const bool any = std::any_of(slots_.begin(), slots_.end(),
                                   [](const Slot& slot) { return slot.has_answered(); });
      if (!any) return loop_.failed > 0 ? failure_error() : silence_error();
      open_window();
    }
    if (loop_.has_window() && at >= next_look) {
      if (is_over(care)) break;
      next_look = at + kLookSeconds;
    }
    if (loop_.failed > 0) {
      for (Slot& slot : slots_) slot.retry(Clock::now());
    }
    metrics_.read_when_due();
    loop_.streams().turn(Clock::now() + std::chrono::milliseconds(50));
  }
  loop_.run.window_end = loop_.now();
  loop_.run.lag = loop_.streams().lag();
  for (const Slot& slot : slots_) {
    if (const RequestRecord* record = slot.in_flight()) loop_.run.requests.push_back(*record);
  }
  return std::move(loop_.run);
}

LoadGenerator::LoadGenerator(HttpStreams& streams, const Server& server, LoadPlan plan)
    : state_(std::make_unique<State>(streams, server, std::move(plan))) {}
LoadGenerator::~LoadGenerator() = default;

Result<LoadRun> LoadGenerator::measure(int64_t concurrency, const LoadCare& care) {
  return state_->measure(concurrency, care);
}

}  // namespace headroom::serving
