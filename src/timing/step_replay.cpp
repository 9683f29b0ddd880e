#include "timing/step_replay.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

namespace headroom::timing {

namespace {

using step::OperatorCall;
using step::Phase;

constexpr double kNever = -std::numeric_limits<double>::infinity();
// So many repetitions are gone through one by one.
constexpr int64_t kFewTimes = 4;
// Collectives of the repetitions before that one may wait for: what is further back has ended.
constexpr size_t kMostReach = 64;

// A time that follows from several others: the latest of them, each so much later.
class Latest {
 public:
  Latest() = default;
  Latest(size_t size, size_t of) : later_(size, kNever) { later_[of] = 0; }
  explicit Latest(size_t size) : later_(size, kNever) {}

  Latest& operator+=(double seconds) {
    for (double& later : later_) later += seconds;
    return *this;
  }
  [[nodiscard]] const std::vector<double>& later() const { return later_; }
  [[nodiscard]] std::vector<double>& later() { return later_; }

 private:
  std::vector<double> later_;
};

Latest later_of(Latest a, const Latest& b) {
  for (size_t i = 0; i < a.later().size(); ++i) a.later()[i] = std::max(a.later()[i], b.later()[i]);
  return a;
}
double later_of(double a, double b) { return std::max(a, b); }

// Where the streams are: a time in seconds, or how it follows from those before.
template <typename Time>
struct Streams {
  Time now{};                              // the one that computes
  std::array<Time, step::kPeers> links{};  // until when the others are taken, by peers
  Time buffers{};                          // since when the next gather of parameters has one
  Time host{};                             // until when the host launches
  std::array<Time, 2> let_go{};            // when the two latest units were done with, older first
  std::vector<Time> ends;                  // of collectives
};

template <typename Time>
void wait(const OperatorCall& call, Streams<Time>& at) {
  if (call.awaits == 0) return;
  Time end = at.now;
  if (call.awaits == step::kAwaitsAll) {
    for (const Time& link : at.links) end = later_of(std::move(end), link);
  } else if (call.awaits <= at.ends.size()) {
    end = later_of(std::move(end), at.ends[at.ends.size() - call.awaits]);
  }
  at.now = at.buffers = std::move(end);
}

// The host's part of a call: when it has launched it.
template <typename Time>
void launch(const OperatorCall& call, double seconds, const HostCosts& costs, Streams<Time>& at) {
  const bool is_units = call.peers == step::Peers::data && !call.follows && costs.unit > 0;
  if (is_units && call.kind == op::OpKind::all_gather) {
    at.host = later_of(std::move(at.host), at.let_go.front());
  }
  if (is_units) {
    at.host += costs.unit;
  } else if (seconds > 0) {
    at.host += costs.launch;
  }
}

// What a call waits for: then the stream that computes, if it is what the call runs on, is there.
template <typename Time>
void come_to(const OperatorCall& call, double seconds, const Pace& pace, Streams<Time>& at) {
  for (uint8_t i = 0; i < call.let_go; ++i) {
    at.let_go.front() = std::exchange(at.let_go.back(), at.now);
  }
  wait(call, at);
  if (pace.host.launch <= 0) return;
  launch(call, seconds, pace.host, at);
  if (!is_collective(call)) at.now = later_of(std::move(at.now), at.host);
}

template <typename Time>
void carry_out(const OperatorCall& call, double seconds, const Pace& pace, Streams<Time>& at) {
  const bool has_host = pace.host.launch > 0;
  if (!is_collective(call)) {
    at.now += pace.kernels * seconds;
    const bool is_waited_for =
        call.kind == op::OpKind::nonzero || call.kind == op::OpKind::read_back;
    if (has_host && is_waited_for) at.host = at.now;
    return;
  }
  const bool is_ahead = call.kind == op::OpKind::all_gather && !call.follows &&
                        call.phase != Phase::optimizer && call.peers != step::Peers::tensor;
  Time& link = at.links[static_cast<size_t>(call.peers)];
  link = later_of(std::move(link), is_ahead ? at.buffers : at.now);
  if (has_host) link = later_of(std::move(link), at.host);
  link += pace.collectives * seconds;
  at.ends.push_back(link);
}

// Whether computing stands still for this collective, however long the others take: nothing is
// between its beginning and its end that it could run beside. (A gather of parameters may have
// begun before.)
bool is_blocking(const OperatorCall& call, const OperatorCall& next) {
  if (call.peers != step::Peers::tensor && call.peers != step::Peers::context &&
      call.peers != step::Peers::expert) {
    return false;
  }
  if (call.peers == step::Peers::context && call.kind == op::OpKind::all_gather) return false;
  return next.awaits == 1 || next.awaits == step::kAwaitsAll;
}

// How far back, in collectives before the first of these calls, they look.
size_t reach_of(std::span<const OperatorCall> calls) {
  size_t begun = 0;
  size_t reach = 0;
  for (const OperatorCall& call : calls) {
    const bool is_named = call.awaits != 0 && call.awaits != step::kAwaitsAll;
    if (is_named && call.awaits > begun) reach = std::max(reach, call.awaits - begun);
    if (is_collective(call)) ++begun;
  }
  return std::min(reach, kMostReach);
}

// All but the collectives' ends, in a fixed order; the host's only where it takes time.
template <typename Time>
std::vector<Time*> places_of(Streams<Time>& at, bool has_host) {
  std::vector<Time*> places{&at.now, &at.buffers};
  for (Time& link : at.links) places.push_back(&link);
  if (!has_host) return places;
  places.push_back(&at.host);
  for (Time& unit : at.let_go) places.push_back(&unit);
  return places;
}

// What calls do to the streams: a matrix over maxima and sums. Its places are the streams', and
// behind them the latest collectives' ends, the oldest first.
class Passage {
 public:
  // `reach`: of these calls and of those behind them.
  Passage(std::span<const OperatorCall> calls, std::span<const double> seconds, const Pace& pace,
          size_t reach)
      : has_host_(pace.host.launch > 0), reach_(reach) {
    Streams<Latest> at;
    const std::vector<Latest*> places = places_of(at, has_host_);
    size_ = places.size() + reach_;
    for (size_t i = 0; i < places.size(); ++i) *places[i] = Latest(size_, i);
    for (size_t i = places.size(); i < size_; ++i) at.ends.emplace_back(size_, i);
    for (size_t i = 0; i < calls.size(); ++i) {
      come_to(calls[i], seconds[i], pace, at);
      carry_out(calls[i], seconds[i], pace, at);
    }
    rows_.reserve(size_);
    for (const Latest* place : places) rows_.push_back(*place);
    rows_.insert(rows_.end(), at.ends.end() - static_cast<std::ptrdiff_t>(reach_), at.ends.end());
  }

  void square() {
    std::vector<Latest> squared;
    squared.reserve(size_);
    for (const Latest& row : rows_) {
      Latest both(size_);
      for (size_t i = 0; i < size_; ++i) {
        if (row.later()[i] == kNever) continue;
        Latest through = rows_[i];
        through += row.later()[i];
        both = later_of(std::move(both), through);
      }
      squared.push_back(std::move(both));
    }
    rows_ = std::move(squared);
  }

  void apply(Streams<double>& at) const {
    const std::vector<double*> places = places_of(at, has_host_);
    std::vector<double> before;
    before.reserve(size_);
    for (const double* place : places) before.push_back(*place);
    // What never began is waited for by nobody.
    const size_t known = std::min(reach_, at.ends.size());
    before.resize(size_ - known, kNever);
    before.insert(before.end(), at.ends.end() - static_cast<std::ptrdiff_t>(known), at.ends.end());
    const auto after = [&](size_t place) {
      double latest = kNever;
      for (size_t i = 0; i < size_; ++i) {
        latest = std::max(latest, before[i] + rows_[place].later()[i]);
      }
      return latest;
    };
    for (size_t i = 0; i < places.size(); ++i) *places[i] = after(i);
    at.ends.clear();
    for (size_t i = places.size(); i < size_; ++i) at.ends.push_back(after(i));
  }

  // As often as that; this one is another passage then.
  void apply_times(int64_t times, Streams<double>& at) {
    for (; times > 0; times /= 2) {
      if (times % 2 == 1) apply(at);
      if (times > 1) square();
    }
  }

 private:
  bool has_host_;
  size_t reach_;
  size_t size_ = 0;
  std::vector<Latest> rows_;
};

// Runs a step and adds up what it does.
class Replayer {
 public:
  Replayer(std::span<const OperatorCall> calls, std::span<const double> seconds, const Pace& pace)
      : calls_(calls), seconds_(seconds), pace_(pace) {}

  void run_once(size_t begin, size_t end) {
    add_up(begin, end, 1);
    run_calls(begin, end);
  }

  void run_often(size_t begin, size_t end, int64_t times) {
    if (times == 0) return;
    const double computed = all_.compute;
    add_up(begin, end, times);
    if (times <= kFewTimes) {
      for (int64_t i = 0; i < times; ++i) run_calls(begin, end);
      return;
    }
    const double before = at_.now;
    const auto repeated = calls_.subspan(begin, end - begin);
    Passage passage(repeated, seconds_.subspan(begin, end - begin), pace_,
                    std::max(reach_of(repeated), reach_of(calls_.subspan(end))));
    passage.apply_times(times, at_);
    all_.exposed += std::max(0.0, at_.now - before - (all_.compute - computed));
  }

  Replayed finish() {
    const double last = *std::ranges::max_element(at_.links);
    all_.exposed += std::max(0.0, last - at_.now);
    all_.seconds = std::max({at_.now, last, all_.compute});  // sums may round the other way
    return all_;
  }

 private:
  void run_calls(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const double before = at_.now;
      come_to(calls_[i], seconds_[i], pace_, at_);
      all_.exposed += at_.now - before;
      carry_out(calls_[i], seconds_[i], pace_, at_);
    }
  }

  void add_up(size_t begin, size_t end, int64_t times) {
    const auto count = static_cast<double>(times);
    for (size_t i = begin; i < end; ++i) {
      if (!is_collective(calls_[i])) {
        all_.compute += count * pace_.kernels * seconds_[i];
        continue;
      }
      const double taken = pace_.collectives * seconds_[i];
      all_.communication += count * taken;
      // Behind the last one of a repetition comes the first one of the next.
      const double within = i + 1 == end ? count - 1 : count;
      const size_t next = i + 1 == end ? begin : i + 1;
      if (within > 0 && is_blocking(calls_[i], calls_[next])) all_.blocking += within * taken;
      const bool has_behind = i + 1 == end && end < calls_.size();
      if (has_behind && is_blocking(calls_[i], calls_[end])) all_.blocking += taken;
    }
  }

  std::span<const OperatorCall> calls_;
  std::span<const double> seconds_;
  Pace pace_;
  Streams<double> at_;
  Replayed all_;
};

}  // namespace

bool is_collective(const OperatorCall& call) {
  return op::group_of(call.kind) == op::OpGroup::communication;
}

std::optional<RepeatedCalls> added_calls(std::span<const OperatorCall> longer,
                                         std::span<const OperatorCall> shorter) {
  if (longer.size() <= shorter.size()) return std::nullopt;
  const size_t count = longer.size() - shorter.size();
  const auto differs = std::ranges::mismatch(longer, shorter, step::does_the_same).in2;
  const auto first = static_cast<size_t>(differs - shorter.begin());
  const bool is_rest_alike = std::ranges::equal(longer.subspan(first + count),
                                                shorter.subspan(first), step::does_the_same);
  if (!is_rest_alike) return std::nullopt;
  return RepeatedCalls{first, count, 1};
}

std::optional<RepeatedCalls> calls_twice_in_a_row(std::span<const OperatorCall> calls, size_t begin,
                                                  size_t count) {
  if (count == 0 || begin > calls.size() || calls.size() - begin < 2 * count) return std::nullopt;
  // As added_calls() finds it, of these and of these without `count` of them.
  const auto differs =
      std::ranges::mismatch(calls.subspan(begin), calls.subspan(begin + count), step::does_the_same)
          .in2;
  const auto alike = static_cast<size_t>(differs - calls.subspan(begin + count).begin());
  if (alike < count) return std::nullopt;
  return RepeatedCalls{begin + alike, count, 1};
}

Replayed replay(std::span<const OperatorCall> calls, std::span<const double> seconds,
                const Pace& pace, const RepeatedCalls& repeated) {
  Replayer replayer(calls, seconds, pace);
  const size_t end = repeated.first + repeated.count;
  replayer.run_once(0, repeated.first);
  replayer.run_often(repeated.first, end, repeated.times);
  replayer.run_once(end, calls.size());
  return replayer.finish();
}

double steady_seconds(std::span<const OperatorCall> calls, std::span<const double> seconds,
                      const Pace& pace, const RepeatedCalls& repeated) {
  constexpr int64_t kMany = 64;
  const auto again = calls.subspan(repeated.first, repeated.count);
  Passage passage(again, seconds.subspan(repeated.first, repeated.count), pace, reach_of(again));
  Streams<double> at;
  passage.apply_times(kMany, at);
  const double before = at.now;
  passage.apply(at);  // which is as many by now
  return (at.now - before) / static_cast<double>(kMany);
}

}  // namespace headroom::timing
