#include "memory/plan/order_history.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace headroom::memory {
namespace {

constexpr int64_t kNever = OrderHistory::kNever;

TEST(OrderHistory, SaysFromWhenOnAStreamComesAfter) {
  const std::vector<OrderEvent> events{
      {10, 1, 100, false}, {12, 2, 100, true}, {20, 1, 101, false},
      {30, 2, 101, true},  {31, 2, 7, true},  // of an event that nobody recorded
  };
  const OrderHistory history(events, {});
  EXPECT_EQ(history.clear_for(2, 1, 5), 12);
  EXPECT_EQ(history.clear_for(2, 1, 11), 30);
  EXPECT_EQ(history.clear_for(2, 1, 21), kNever);
  EXPECT_EQ(history.clear_for(1, 2, 5), kNever);
  EXPECT_EQ(history.clear_for(3, 1, 5), kNever);
  EXPECT_EQ(OrderHistory({}, {}).clear_for(2, 1, 5), kNever);
}

TEST(OrderHistory, AStreamThatIsQuietMayBeWaitedFor) {
  const std::vector<OrderEvent> events{{10, 1, 100, false}, {12, 2, 100, true}};
  const auto asked = [](int64_t time) {
    RecordedRequest request;
    request.lower = time;
    request.stream = 1;
    return request;
  };
  const std::vector<RecordedRequest> requests{asked(5), asked(20), asked(21)};
  const OrderHistory history(events, requests);
  EXPECT_EQ(history.clear_by_joining(2, 1, 8), 12);
  EXPECT_EQ(history.clear_by_joining(2, 1, 11), 12);  // released behind the event, before the wait
  EXPECT_EQ(history.clear_by_joining(2, 1, 15), 15);
  EXPECT_EQ(history.clear_by_joining(2, 1, 20), kNever);  // it is at work again
  EXPECT_EQ(history.clear_by_joining(1, 2, 5), kNever);
  // A request between event and wait is work that the event does not hold.
  const OrderHistory busy(events, std::vector<RecordedRequest>{asked(5), asked(11)});
  EXPECT_EQ(busy.clear_by_joining(2, 1, 15), kNever);
  EXPECT_EQ(busy.clear_by_joining(2, 1, 8), 12);
}

// What clocks that run along say at each moment is what the history says afterwards.
TEST(OrderHistory, AgreesWithClocksThatRunAlong) {
  std::mt19937_64 random(9);
  size_t seen = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<OrderEvent> events;
    StreamOrder order;
    struct Release {
      int64_t stream, time, clear;
      StreamOrder::Epoch epoch;
    };
    std::vector<Release> releases;  // as they come clear for stream 0
    for (int64_t time = 1; time < 200; ++time) {
      const auto stream = static_cast<int64_t>(random() % 4);
      if (random() % 3 == 0) {
        if (stream != 0) releases.push_back({stream, time, kNever, order.epoch(stream)});
      } else if (random() % 2 == 0 || events.empty()) {
        events.push_back({time, stream, order.record(stream), false});
      } else {
        const StreamOrder::Ticket ticket = events[random() % events.size()].ticket;
        events.push_back({time, stream, ticket, true});
        order.wait(stream, ticket);
      }
      for (Release& release : releases) {
        const bool is_known = order.known(0, release.stream) >= release.epoch;
        if (release.clear == kNever && is_known) release.clear = time;
      }
    }
    const OrderHistory history(events, {});
    for (const Release& release : releases) {
      ASSERT_EQ(history.clear_for(0, release.stream, release.time), release.clear) << round;
      seen += release.clear != kNever ? 1 : 0;
    }
  }
  EXPECT_GT(seen, 100u);
}

}  // namespace
}  // namespace headroom::memory
