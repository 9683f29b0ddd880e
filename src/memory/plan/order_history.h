// OrderHistory: when, in a recorded run, one stream came behind what another had released.
//
// Made from the events that the program recorded and waited for (stream_order.h), with the times of
// the recording's requests. Pure. O((events + requests) times streams) to make; a question asks
// each stream, O(log events).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memory/packing/recorded_requests.h"
#include "memory/stream_order.h"

namespace headroom::memory {

struct OrderEvent {
  int64_t time = 0;  // as in recorded_requests.h
  int64_t stream = 0;
  StreamOrder::Ticket ticket = 0;  // of the event that is recorded, or waited for
  bool is_wait = false;
};

// Recorded events, told to clocks that give them tickets of their own.
class RecordedOrder {
 public:
  // One that waits for an event that was never recorded changes nothing.
  void play(const OrderEvent& event) {
    if (event.is_wait) {
      const auto ticket = tickets_.find(event.ticket);
      if (ticket != tickets_.end()) order_.wait(event.stream, ticket->second);
    } else {
      tickets_[event.ticket] = order_.record(event.stream);
    }
  }
  [[nodiscard]] StreamOrder& order() { return order_; }

 private:
  StreamOrder order_;
  std::unordered_map<StreamOrder::Ticket, StreamOrder::Ticket> tickets_;
};

class OrderHistory {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  // Both in order.
  OrderHistory(std::span<const OrderEvent> events, std::span<const RecordedRequest> requests);

  // Nothing was told of any order.
  [[nodiscard]] bool is_empty() const { return streams_.empty(); }

  // A block of the stream `of`: when it was requested and released.
  struct Life {
    int64_t requested = 0;
    int64_t released = 0;
  };
  // The first time from which all that `who` is given comes after all that may have been at work on
  // the block; kNever where that is not seen.
  [[nodiscard]] int64_t clear_for(int64_t who, int64_t of, Life life) const;
  // The same where whoever serves may have `who` wait for streams that are quiet: it has waited for
  // all of their events and what those waited for, and they asked for nothing since the last one.
  [[nodiscard]] int64_t clear_by_joining(int64_t who, int64_t of, Life life) const;

 private:
  using Pair = std::pair<int64_t, int64_t>;  // who, and of
  struct Step {
    StreamOrder::Epoch epoch = 0;  // known
    int64_t time = 0;              // from then on
  };
  struct Stretch {
    int64_t begins = 0;
    int64_t ends = kNever;
  };
  class Maker;

  [[nodiscard]] StreamOrder::Epoch epoch_at(int64_t stream, int64_t time) const;
  [[nodiscard]] int64_t known_from(int64_t who, int64_t of, StreamOrder::Epoch epoch) const;
  [[nodiscard]] int64_t quiet_from(int64_t who, int64_t of, int64_t time) const;
  [[nodiscard]] std::vector<int64_t> users(int64_t of, Life life) const;

  std::vector<int64_t> streams_;
  std::map<int64_t, std::vector<int64_t>> records_;  // by stream: when an epoch of it ended
  std::map<Pair, std::vector<Step>> steps_;
  std::map<Pair, std::vector<Stretch>> quiet_;
};

}  // namespace headroom::memory
