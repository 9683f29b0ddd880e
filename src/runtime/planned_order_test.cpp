// Guests that come and go as the program has its streams wait for one another.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "memory/plan/plan_sample.h"
#include "memory/stream_order.h"
#include "runtime/planned_arena.h"

namespace headroom::runtime {
namespace {

using Source = PlannedArena::Source;

constexpr int64_t kApart = int64_t{1} << 40;
CudaStream* const kMain = reinterpret_cast<CudaStream*>(uintptr_t{0x1000});
CudaStream* const kSide = reinterpret_cast<CudaStream*>(uintptr_t{0x2000});

// memory/plan/plan_sample.h: the main stream's requests are 1000, 1003, and the guests 1004 and
// 1005; the side's are 1001 and 1002.
class OrderedArena {
 public:
  OrderedArena() {
    arena.set_order(&order_);
    arena.set_stream(0, kMain);
    arena.set_stream(1, kSide);
    for (uint32_t track = 0; track < 2; ++track) arena.place(track, kApart * (track + 1));
    for (size_t pass = 0; pass < kGramRequests; ++pass) {
      for (const int64_t size : {1000, 1001, 1002, 1003, 1004, 1005}) {
        arena.follow(stream_of(size), size);
      }
    }
  }
  static CudaStream* stream_of(int64_t size) {
    return size == 1001 || size == 1002 ? kSide : kMain;
  }
  PlannedArena::Served take(int64_t size) { return arena.allocate(stream_of(size), size, 0); }
  void give(int64_t address) {
    EXPECT_FALSE(arena.hand_over(address));  // no event of ours is needed
    arena.release(address);
  }
  uint64_t record(CudaStream* stream) { return order_.record(handle(stream)); }
  void wait(CudaStream* stream, uint64_t event) { order_.wait(handle(stream), event); }
  // Up to the first guest: what the lender had is given back. `user`: another stream that came
  // behind the lender's requests.
  void begin_pass(uint64_t* event = nullptr, CudaStream* user = nullptr) {
    first_ = take(1000).address;
    const int64_t one = take(1001).address;
    const int64_t other = take(1002).address;
    if (event != nullptr) *event = record(kSide);
    if (user != nullptr) wait(user, *event);
    give(one);
    give(other);
    second_ = take(1003).address;
  }
  void end_pass(int64_t guest, int64_t last) {
    for (const int64_t address : {first_, second_, guest, last}) give(address);
  }

  PlannedArena arena{std::make_shared<const CompiledPlan>(compile_plan(memory::plan_in_order()))};

 private:
  static int64_t handle(CudaStream* stream) { return reinterpret_cast<intptr_t>(stream); }
  memory::StreamOrder order_;
  int64_t first_ = 0;
  int64_t second_ = 0;
};

TEST(PlannedOrder, AGuestComesWhereItsStreamHasWaitedForTheLender) {
  OrderedArena ordered;
  ordered.begin_pass();
  EXPECT_EQ(ordered.take(1004).source, Source::none);
  const uint64_t event = ordered.record(kSide);
  EXPECT_EQ(ordered.take(1005).source, Source::none);
  ordered.wait(kMain, event);
  EXPECT_EQ(ordered.arena.guests(), 0);
  OrderedArena waiting;
  waiting.begin_pass();
  waiting.wait(kMain, waiting.record(kSide));
  EXPECT_EQ(waiting.take(1004).address, 2 * kApart);
  EXPECT_EQ(waiting.take(1005).address, 2 * kApart + 1024);
}

TEST(PlannedOrder, TheLenderComesBackWhereItHasWaitedForTheGuest) {
  for (const bool waits : {true, false}) {
    OrderedArena ordered;
    ordered.begin_pass();
    ordered.wait(kMain, ordered.record(kSide));
    const int64_t guest = ordered.take(1004).address;
    const int64_t last = ordered.take(1005).address;
    const uint64_t early = ordered.record(kMain);
    ordered.end_pass(guest, last);
    ordered.wait(kSide, waits ? ordered.record(kMain) : early);
    ordered.take(1000);
    EXPECT_EQ(ordered.take(1001).source, waits ? Source::planned : Source::none);
    EXPECT_EQ(ordered.arena.is_lending(), waits);
  }
}

TEST(PlannedOrder, TheBorrowerMayBeMadeToWaitWhereTheLenderIsQuiet) {
  OrderedArena ordered;
  uint64_t event = 0;
  ordered.begin_pass(&event);
  EXPECT_TRUE(ordered.arena.is_join_due());
  EXPECT_FALSE(ordered.arena.wanted_events());  // nobody has waited for the lender's event
  EXPECT_FALSE(ordered.arena.is_join_due());
  ordered.wait(kMain, event);
  ordered.arena.note_wait();
  ASSERT_TRUE(ordered.arena.is_join_due());
  const auto wanted = ordered.arena.wanted_events();
  ASSERT_TRUE(wanted);
  EXPECT_EQ(wanted->streams, std::vector<CudaStream*>{kSide});
  const uint64_t ours = ordered.record(kSide);
  EXPECT_FALSE(ordered.arena.wanted_join(kMain));  // not recorded yet
  ordered.arena.have_recorded(wanted->lender);
  EXPECT_FALSE(ordered.arena.wanted_events());
  EXPECT_FALSE(ordered.arena.wanted_join(kSide));
  EXPECT_FALSE(ordered.arena.wanted_join(reinterpret_cast<CudaStream*>(uintptr_t{0x3000})));
  ASSERT_EQ(ordered.arena.wanted_join(kMain), wanted->lender);
  ordered.arena.have_joined(wanted->lender);
  ordered.wait(kMain, ours);
  EXPECT_FALSE(ordered.arena.wanted_join(kMain));
  EXPECT_EQ(ordered.take(1004).source, Source::planned);
}

TEST(PlannedOrder, NobodyIsMadeToWaitForAStreamThatIsAtWork) {
  OrderedArena ordered;
  ordered.begin_pass();
  ordered.wait(kMain, ordered.record(kSide));
  const int64_t guest = ordered.take(1004).address;
  const int64_t last = ordered.take(1005).address;
  ordered.end_pass(guest, last);
  ordered.wait(kSide, ordered.record(kMain));
  ordered.take(1000);
  ordered.wait(kMain, ordered.record(kSide));
  ordered.give(ordered.take(1001).address);  // asked for behind the last event
  EXPECT_FALSE(ordered.arena.wanted_events());
}

TEST(PlannedOrder, NobodyIsMadeToWaitForAStreamThatWaitsForAnother) {
  OrderedArena ordered;
  uint64_t event = 0;
  ordered.begin_pass(&event);
  ordered.wait(kMain, event);
  CudaStream* const other = reinterpret_cast<CudaStream*>(uintptr_t{0x3000});
  ordered.wait(kSide, ordered.record(other));
  EXPECT_FALSE(ordered.arena.wanted_events());
  ordered.wait(kMain, ordered.record(other));
  ordered.arena.note_wait();
  EXPECT_TRUE(ordered.arena.wanted_events());
}

// A stream that came behind the request may be at work on the block, whoever released it.
TEST(PlannedOrder, AGuestComesOnlyBehindAllWhoMayBeAtWorkOnTheBytes) {
  for (const bool waits : {true, false}) {
    OrderedArena ordered;
    CudaStream* const other = reinterpret_cast<CudaStream*>(uintptr_t{0x3000});
    uint64_t event = 0;
    ordered.begin_pass(&event, other);
    ordered.wait(kMain, ordered.record(kSide));
    if (waits) ordered.wait(kMain, ordered.record(other));
    EXPECT_EQ(ordered.take(1004).source, waits ? Source::planned : Source::none);
  }
}

}  // namespace
}  // namespace headroom::runtime
