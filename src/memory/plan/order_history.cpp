#include "memory/plan/order_history.h"

#include <algorithm>

namespace headroom::memory {

class OrderHistory::Maker {
 public:
  explicit Maker(OrderHistory& made) : made_(made) {}

  void request(int64_t stream, int64_t time) {
    StreamOrder::Epoch& asked = asked_[stream];
    const StreamOrder::Epoch now = order_.epoch(stream);
    if (asked == now) return;
    asked = now;
    for (const int64_t who : made_.streams_) note_quiet(who, stream, time);
  }
  void event(const OrderEvent& event) {
    played_.play(event);
    if (!event.is_wait) made_.records_[event.stream].push_back(event.time);
    for (const int64_t other : made_.streams_) {
      if (other == event.stream) continue;
      if (event.is_wait) {
        note_known(event.stream, other, event.time);
        note_quiet(event.stream, other, event.time);
      }
      note_quiet(other, event.stream, event.time);
    }
  }

 private:
  void note_known(int64_t who, int64_t of, int64_t time) {
    const StreamOrder::Epoch known = order_.known(who, of);
    std::vector<Step>& steps = made_.steps_[{who, of}];
    if (known > (steps.empty() ? 0 : steps.back().epoch)) steps.push_back({known, time});
  }
  void note_quiet(int64_t who, int64_t of, int64_t time) {
    const bool is_quiet = order_.covers(who, of) && asked_[of] < order_.epoch(of);
    std::vector<Stretch>& stretches = made_.quiet_[{who, of}];
    const bool was_quiet = !stretches.empty() && stretches.back().ends == kNever;
    if (is_quiet && !was_quiet) stretches.push_back({time});
    if (!is_quiet && was_quiet) stretches.back().ends = time;
  }

  OrderHistory& made_;
  RecordedOrder played_;
  StreamOrder& order_ = played_.order();
  std::unordered_map<int64_t, StreamOrder::Epoch> asked_;  // by stream: the epoch of its last one
};

OrderHistory::OrderHistory(std::span<const OrderEvent> events,
                           std::span<const RecordedRequest> requests) {
  if (events.empty()) return;
  for (const OrderEvent& event : events) streams_.push_back(event.stream);
  std::sort(streams_.begin(), streams_.end());
  streams_.erase(std::unique(streams_.begin(), streams_.end()), streams_.end());
  if (streams_.size() > StreamOrder::kMostStreams) streams_.resize(StreamOrder::kMostStreams);
  Maker maker(*this);
  auto request = requests.begin();
  for (const OrderEvent& event : events) {
    for (; request != requests.end() && request->lower < event.time; ++request) {
      maker.request(request->stream, request->lower);
    }
    maker.event(event);
  }
  for (; request != requests.end(); ++request) maker.request(request->stream, request->lower);
}

// The epoch that ran on the stream.
StreamOrder::Epoch OrderHistory::epoch_at(int64_t stream, int64_t time) const {
  const auto records = records_.find(stream);
  if (records == records_.end()) return 1;
  const auto& times = records->second;
  const auto ended = std::lower_bound(times.begin(), times.end(), time) - times.begin();
  return static_cast<StreamOrder::Epoch>(ended) + 1;
}

int64_t OrderHistory::known_from(int64_t who, int64_t of, StreamOrder::Epoch epoch) const {
  const auto steps = steps_.find({who, of});
  if (steps == steps_.end()) return kNever;
  const auto step = std::partition_point(steps->second.begin(), steps->second.end(),
                                         [&](const Step& one) { return one.epoch < epoch; });
  return step == steps->second.end() ? kNever : step->time;
}

int64_t OrderHistory::quiet_from(int64_t who, int64_t of, int64_t time) const {
  const auto found = quiet_.find({who, of});
  if (found == quiet_.end()) return kNever;
  const auto& stretches = found->second;
  const auto first =
      std::partition_point(stretches.begin(), stretches.end(),
                           [&](const Stretch& stretch) { return stretch.ends <= time; });
  return first == stretches.end() ? kNever : std::max(first->begins, time);
}

// Its own stream, and those that came behind the epoch in which it was requested.
std::vector<int64_t> OrderHistory::users(int64_t of, Life life) const {
  const StreamOrder::Epoch requested = epoch_at(of, life.requested);
  std::vector<int64_t> users{of};
  for (const int64_t stream : streams_) {
    if (stream != of && known_from(stream, of, requested) <= life.released) {
      users.push_back(stream);
    }
  }
  return users;
}

int64_t OrderHistory::clear_for(int64_t who, int64_t of, Life life) const {
  int64_t clear = life.released;
  for (const int64_t user : users(of, life)) {
    if (user == who) continue;
    clear = std::max(clear, known_from(who, user, epoch_at(user, life.released)));
  }
  return clear;
}

int64_t OrderHistory::clear_by_joining(int64_t who, int64_t of, Life life) const {
  const std::vector<int64_t> all = users(of, life);
  int64_t time = life.released;
  // Each round goes on to where one more of them is quiet, until all are at once.
  for (bool is_clear = false; !is_clear && time != kNever;) {
    is_clear = true;
    for (const int64_t user : all) {
      if (user == who) continue;
      const int64_t known = known_from(who, user, epoch_at(user, life.released));
      const int64_t from = known <= time ? time : std::min(known, quiet_from(who, user, time));
      is_clear = is_clear && from == time;
      time = from;
    }
  }
  return time;
}

}  // namespace headroom::memory
