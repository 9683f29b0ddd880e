#include "memory/plan/order_history.h"

#include <algorithm>
#include <unordered_map>

namespace headroom::memory {

class OrderHistory::Maker {
 public:
  explicit Maker(OrderHistory& made) : made_(made) {}

  void request(int64_t stream, int64_t time) {
    StreamOrder::Epoch& asked = asked_[stream];
    const StreamOrder::Epoch now = order_.epoch(stream);
    if (asked == now) return;
    asked = now;
    part_from(stream, time);
  }
  void event(const OrderEvent& event) {
    if (event.is_wait) {
      wait(event);
      return;
    }
    tickets_[event.ticket] = order_.record(event.stream);
    made_.records_[event.stream].push_back(event.time);
    part_from(event.stream, event.time);
  }

 private:
  void wait(const OrderEvent& event) {
    const auto ticket = tickets_.find(event.ticket);
    if (ticket == tickets_.end()) return;
    order_.wait(event.stream, ticket->second);
    for (const auto& [of, times] : made_.records_) {
      if (of == event.stream) continue;
      const StreamOrder::Epoch known = order_.known(event.stream, of);
      std::vector<Step>& steps = made_.steps_[{event.stream, of}];
      if (known > (steps.empty() ? 0 : steps.back().epoch)) steps.push_back({known, event.time});
      const bool is_joined = known + 1 == order_.epoch(of) && asked_[of] <= known;
      std::vector<Stretch>& joined = made_.joined_[{event.stream, of}];
      const bool was_joined = !joined.empty() && joined.back().ends == kNever;
      if (is_joined && !was_joined) joined.push_back({event.time});
    }
  }
  // From now on it costs something to wait for the stream.
  void part_from(int64_t stream, int64_t time) {
    for (auto& [pair, joined] : made_.joined_) {
      if (pair.second == stream && !joined.empty() && joined.back().ends == kNever) {
        joined.back().ends = time;
      }
    }
  }

  OrderHistory& made_;
  StreamOrder order_;
  // Of the recording's tickets to those of the clocks here, which begin anew.
  std::unordered_map<StreamOrder::Ticket, StreamOrder::Ticket> tickets_;
  std::unordered_map<int64_t, StreamOrder::Epoch> asked_;  // by stream: the epoch of its last one
};

OrderHistory::OrderHistory(std::span<const OrderEvent> events,
                           std::span<const RecordedRequest> requests) {
  if (events.empty()) return;
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

int64_t OrderHistory::clear_for(int64_t who, int64_t of, int64_t released) const {
  const auto records = records_.find(of);
  const auto steps = steps_.find({who, of});
  if (records == records_.end() || steps == steps_.end()) return kNever;
  const auto& times = records->second;
  const auto ended = std::lower_bound(times.begin(), times.end(), released) - times.begin();
  const auto epoch = static_cast<StreamOrder::Epoch>(ended) + 1;
  const auto step = std::partition_point(steps->second.begin(), steps->second.end(),
                                         [&](const Step& one) { return one.epoch < epoch; });
  return step == steps->second.end() ? kNever : step->time;
}

int64_t OrderHistory::clear_by_joining(int64_t who, int64_t of, int64_t released) const {
  const int64_t in_order = clear_for(who, of, released);
  const auto joined = joined_.find({who, of});
  if (joined == joined_.end()) return in_order;
  const auto& stretches = joined->second;
  const auto first =
      std::partition_point(stretches.begin(), stretches.end(),
                           [&](const Stretch& stretch) { return stretch.ends <= released; });
  if (first == stretches.end()) return in_order;
  return std::min(in_order, std::max(first->begins, released));
}

}  // namespace headroom::memory
