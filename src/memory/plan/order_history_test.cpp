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
  EXPECT_EQ(history.clear_for(2, 1, {1, 5}), 12);
  EXPECT_EQ(history.clear_for(2, 1, {1, 11}), 30);
  EXPECT_EQ(history.clear_for(2, 1, {1, 21}), kNever);
  EXPECT_EQ(history.clear_for(1, 2, {1, 5}), kNever);
  EXPECT_EQ(history.clear_for(3, 1, {1, 5}), kNever);
  EXPECT_EQ(OrderHistory({}, {}).clear_for(2, 1, {1, 5}), kNever);
}

// 3 came behind 1's request, and may be at work on the block until something is recorded on it.
TEST(OrderHistory, WhoeverMayBeAtWorkOnABlockIsWaitedFor) {
  const std::vector<OrderEvent> events{
      {10, 1, 100, false}, {11, 3, 100, true},  {12, 2, 100, true}, {20, 1, 101, false},
      {21, 2, 101, true},  {30, 3, 102, false}, {31, 2, 102, true},
  };
  const OrderHistory history(events, {});
  EXPECT_EQ(history.clear_for(2, 1, {5, 15}), 31);
  EXPECT_EQ(history.clear_for(2, 1, {13, 15}), 21);  // requested since
  EXPECT_EQ(history.clear_for(3, 1, {5, 15}), kNever);
}

RecordedRequest asked(int64_t time, int64_t stream = 1) {
  RecordedRequest request;
  request.lower = time;
  request.stream = stream;
  return request;
}

TEST(OrderHistory, AStreamThatIsQuietMayBeWaitedFor) {
  const std::vector<OrderEvent> events{{10, 1, 100, false}, {12, 2, 100, true}};
  const std::vector<RecordedRequest> requests{asked(5), asked(20), asked(21)};
  const OrderHistory history(events, requests);
  EXPECT_EQ(history.clear_by_joining(2, 1, {5, 8}), 12);
  EXPECT_EQ(history.clear_by_joining(2, 1, {5, 11}), 12);  // released before the wait
  EXPECT_EQ(history.clear_by_joining(2, 1, {5, 15}), 15);
  EXPECT_EQ(history.clear_by_joining(2, 1, {5, 20}), kNever);  // it is at work again
  EXPECT_EQ(history.clear_by_joining(1, 2, {5, 8}), kNever);
  // A request between event and wait is work that the event does not hold.
  const OrderHistory busy(events, std::vector<RecordedRequest>{asked(5), asked(11)});
  EXPECT_EQ(busy.clear_by_joining(2, 1, {5, 15}), kNever);
  EXPECT_EQ(busy.clear_by_joining(2, 1, {5, 8}), 12);
}

TEST(OrderHistory, AStreamThatWaitsForAnotherIsNotQuiet) {
  const std::vector<OrderEvent> events{
      {10, 1, 100, false}, {12, 2, 100, true},  // quiet for 2 from here on,
      {14, 3, 101, false}, {15, 1, 101, true},  // until it waits for what 2 has not
      {20, 2, 101, true},                       // waited for
  };
  const OrderHistory history(events, std::vector<RecordedRequest>{asked(5)});
  EXPECT_EQ(history.clear_by_joining(2, 1, {5, 13}), 13);
  EXPECT_EQ(history.clear_by_joining(2, 1, {5, 16}), 20);
}

// What clocks that run along say at each moment is what the history says afterwards.
TEST(OrderHistory, AgreesWithClocksThatRunAlong) {
  std::mt19937_64 random(9);
  size_t seen = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<OrderEvent> events;
    StreamOrder order;
    struct Block {
      int64_t stream = 0;
      int64_t requested = 0;
      StreamOrder::Epoch epoch = 0;
      int64_t released = 0;
      int64_t clear = kNever;  // for stream 0
      std::optional<StreamOrder::Clock> users{};
    };
    std::vector<Block> live;
    std::vector<Block> released;
    for (int64_t time = 1; time < 300; ++time) {
      const auto stream = static_cast<int64_t>(random() % 4);
      const uint64_t what = random() % 8;
      if (what < 2 && stream != 0) {
        Block block;
        block.stream = stream;
        block.requested = time;
        block.epoch = order.epoch(stream);
        live.push_back(block);
      } else if (what == 2 && !live.empty()) {
        Block block = live[random() % live.size()];
        block.released = time;
        block.users = order.users(block.stream, block.epoch);
        released.push_back(block);
      } else if (what < 6 || events.empty()) {
        events.push_back({time, stream, order.record(stream), false});
      } else {
        const StreamOrder::Ticket ticket = events[random() % events.size()].ticket;
        events.push_back({time, stream, ticket, true});
        order.wait(stream, ticket);
      }
      for (Block& block : released) {
        if (block.clear == kNever && order.comes_after(0, *block.users)) block.clear = time;
      }
    }
    const OrderHistory history(events, {});
    for (const Block& block : released) {
      ASSERT_EQ(history.clear_for(0, block.stream, {block.requested, block.released}), block.clear)
          << round;
      seen += block.clear != kNever ? 1 : 0;
    }
  }
  EXPECT_GT(seen, 100u);
}

}  // namespace
}  // namespace headroom::memory
