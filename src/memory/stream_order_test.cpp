#include "memory/stream_order.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace headroom::memory {
namespace {

TEST(StreamOrder, WhoWaitsComesAfterWhatWasReleasedBefore) {
  StreamOrder order;
  const StreamOrder::Epoch before = order.epoch(1);
  const StreamOrder::Ticket event = order.record(1);
  const StreamOrder::Epoch after = order.epoch(1);
  EXPECT_LT(order.known(2, 1), before);
  order.wait(2, event);
  EXPECT_GE(order.known(2, 1), before);
  EXPECT_LT(order.known(2, 1), after);
  EXPECT_EQ(order.known(1, 2), 0u);
}

TEST(StreamOrder, OrderGoesOnFromStreamToStream) {
  StreamOrder order;
  const StreamOrder::Epoch first = order.epoch(1);
  order.wait(2, order.record(1));
  order.wait(3, order.record(2));
  EXPECT_GE(order.known(3, 1), first);
}

TEST(StreamOrder, NothingIsKnownOfNoEventAndOfOneThatIsForgotten) {
  StreamOrder order;
  order.wait(2, 0);
  order.wait(2, 77);
  const StreamOrder::Ticket old = order.record(1);
  for (size_t i = 0; i < StreamOrder::kKeptEvents; ++i) order.record(3);
  order.wait(2, old);
  order.wait(2, old + StreamOrder::kKeptEvents + 5);  // was never given
  EXPECT_EQ(order.known(2, 1), 0u);
}

TEST(StreamOrder, NothingIsKnownOfMoreStreamsThanThereMayBe) {
  StreamOrder order;
  const auto most = static_cast<int64_t>(StreamOrder::kMostStreams);
  for (int64_t stream = 0; stream < most; ++stream) EXPECT_NE(order.record(stream), 0u);
  EXPECT_EQ(order.record(most), 0u);
  order.wait(most, order.record(0));
  EXPECT_EQ(order.known(most, 0), 0u);
  EXPECT_EQ(order.epoch(most), 1u);
}

TEST(StreamOrder, WhoCameBehindABlocksRequestMayBeAtWorkOnIt) {
  StreamOrder order;
  const StreamOrder::Epoch requested = order.epoch(1);
  order.wait(3, order.record(1));
  const auto users = order.users(1, requested);
  ASSERT_TRUE(users);
  order.wait(2, order.record(1));
  EXPECT_FALSE(order.comes_after(2, *users));  // of 3 nothing is known
  order.wait(2, order.record(3));
  EXPECT_TRUE(order.comes_after(2, *users));
  const auto later = order.users(1, order.epoch(1));  // requested since: nobody else came behind it
  order.wait(2, order.record(1));
  EXPECT_TRUE(order.comes_after(2, *later));
}

TEST(StreamOrder, CoversWhatAnotherHasWaitedForToo) {
  StreamOrder order;
  EXPECT_FALSE(order.covers(2, 1));
  order.wait(2, order.record(1));
  EXPECT_TRUE(order.covers(2, 1));
  order.wait(1, order.record(3));
  EXPECT_FALSE(order.covers(2, 1));
  order.wait(2, order.record(3));
  EXPECT_TRUE(order.covers(2, 1));
  order.record(1);
  EXPECT_FALSE(order.covers(2, 1));
}

// The same by what it means: pieces of work, and which of them reach which.
class Graph {
 public:
  explicit Graph(size_t streams) : last_(streams, kNothing) {}
  // What is queued next on the stream, and the number that it has.
  size_t add(size_t stream, std::vector<size_t> behind = {}) {
    if (last_[stream] != kNothing) behind.push_back(last_[stream]);
    behind_.push_back(std::move(behind));
    return last_[stream] = behind_.size() - 1;
  }
  [[nodiscard]] bool reaches(size_t from, size_t to) const {
    std::vector<size_t> open{to};
    std::vector<bool> seen(behind_.size());
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      if (at == from) return true;
      if (seen[at]) continue;
      seen[at] = true;
      open.insert(open.end(), behind_[at].begin(), behind_[at].end());
    }
    return false;
  }

 private:
  static constexpr size_t kNothing = ~size_t{0};
  std::vector<std::vector<size_t>> behind_;
  std::vector<size_t> last_;
};

TEST(StreamOrder, KnowsWhatTheGraphOfWorkSaysAndNoMore) {
  std::mt19937_64 random(5);
  size_t in_order = 0;
  size_t apart = 0;
  for (int round = 0; round < 60; ++round) {
    const size_t streams = 2 + random() % 5;
    StreamOrder order;
    Graph graph(streams);
    struct Event {
      StreamOrder::Ticket ticket = 0;
      size_t node = 0;
    };
    std::vector<Event> events;
    struct Release {
      size_t stream = 0;
      size_t last_work = 0;
      StreamOrder::Epoch epoch = 0;
    };
    std::vector<Release> releases;
    for (int step = 0; step < 120; ++step) {
      const size_t stream = random() % streams;
      const auto handle = static_cast<int64_t>(stream);
      switch (random() % 4) {
        case 0:
          releases.push_back({stream, graph.add(stream), order.epoch(handle)});
          break;
        case 1:
          events.push_back({order.record(handle), graph.add(stream)});
          break;
        case 2:
          if (events.empty()) break;
          {
            const Event& event = events[random() % events.size()];
            graph.add(stream, {event.node});
            order.wait(handle, event.ticket);
          }
          break;
        default:
          graph.add(stream);
      }
      for (size_t who = 0; who < streams && step % 10 == 0; ++who) {
        const size_t next = graph.add(who);
        for (const Release& release : releases) {
          if (release.stream == who) continue;
          const bool known = order.known(static_cast<int64_t>(who),
                                         static_cast<int64_t>(release.stream)) >= release.epoch;
          ASSERT_EQ(known, graph.reaches(release.last_work, next)) << round << " " << step;
          (known ? in_order : apart) += 1;
        }
      }
    }
  }
  EXPECT_GT(in_order, 1000u);
  EXPECT_GT(apart, 1000u);
}

}  // namespace
}  // namespace headroom::memory
