// OrderHistory: when, in a recorded run, one stream came behind what another had released.
//
// Made from the events that the program recorded and waited for (stream_order.h), with the times of
// the recording's requests. Pure. O((events + requests) times streams) to make, O(log events) to
// ask.
#pragma once

#include <cstdint>
#include <map>
#include <span>
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

class OrderHistory {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  // Both in order. Tickets as a StreamOrder gives them, from any number on.
  OrderHistory(std::span<const OrderEvent> events, std::span<const RecordedRequest> requests);

  // The first time from which all that `who` is given comes after what `of` was given before
  // `released`; kNever where that is not seen.
  [[nodiscard]] int64_t clear_for(int64_t who, int64_t of, int64_t released) const;
  // The same where whoever serves may have `who` wait for `of` as long as that costs nothing: while
  // `who` has waited for all events of `of`, and `of` has asked for nothing since the last one.
  [[nodiscard]] int64_t clear_by_joining(int64_t who, int64_t of, int64_t released) const;

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

  std::map<int64_t, std::vector<int64_t>> records_;  // by stream: when an epoch of it ended
  std::map<Pair, std::vector<Step>> steps_;
  std::map<Pair, std::vector<Stretch>> joined_;  // when it costs nothing
};

}  // namespace headroom::memory
