// Guests of a plan: what is served in another stream's cells, and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/units.h"
#include "memory/generated/training_run.h"
#include "memory/plan/plan_checker.h"
#include "memory/plan/plan_sample.h"
#include "runtime/planned_arena.h"
#include "runtime/planner.h"
#include "runtime/prediction.h"

namespace headroom::runtime {
namespace {

using Source = PlannedArena::Source;

CudaStream* stream_named(uint64_t number) {
  return reinterpret_cast<CudaStream*>(static_cast<uintptr_t>(0x1000 * number));
}

constexpr int64_t kApart = int64_t{1} << 40;  // from one track's bytes to the next one's

// memory/plan/plan_sample.h has its slots: the first stream's are 1000, 1003, and the guests 1004
// and 1005, the other's 1001 and 1002.
class SmallArena {
 public:
  SmallArena() {
    for (uint32_t track = 0; track < 2; ++track) {
      arena.set_stream(track, stream_named(track));
      arena.place(track, kApart * (track + 1));
    }
    // Each track has to see kGramRequests to know where it is.
    for (size_t pass = 0; pass < kGramRequests; ++pass) {
      for (const int64_t size : {1000, 1001, 1002, 1003, 1004, 1005}) follow(size);
    }
  }
  static uint64_t stream_of(int64_t size) { return size == 1001 || size == 1002 ? 1 : 0; }
  void follow(int64_t size) { arena.follow(stream_named(stream_of(size)), size); }
  PlannedArena::Served take(int64_t size) {
    return arena.allocate(stream_named(stream_of(size)), size, 0);
  }
  // True where it has to await an event of its own stream.
  bool give(int64_t address) {
    const bool awaits = arena.hand_over(address);
    arena.release(address);
    return awaits;
  }

  PlannedArena arena{std::make_shared<const CompiledPlan>(compile_plan(memory::lending_plan()))};
};

TEST(Lending, AGuestComesBehindTheLendersEvent) {
  SmallArena small;
  for (int pass = 0; pass < 3; ++pass) {
    const auto first = small.take(1000);
    const auto lenders = small.take(1001);
    const auto other = small.take(1002);
    ASSERT_EQ(lenders.address, 2 * kApart);
    ASSERT_EQ(other.address, 2 * kApart + 1024);
    EXPECT_TRUE(small.give(lenders.address));
    const auto second = small.take(1003);
    EXPECT_FALSE(small.give(second.address));  // at home
    EXPECT_TRUE(small.give(other.address));
    const auto guest = small.take(1004);
    ASSERT_EQ(guest.source, Source::planned);
    EXPECT_EQ(guest.address, 2 * kApart);
    EXPECT_EQ(small.arena.stream_at(guest.address), stream_named(0));
    EXPECT_EQ(small.arena.find(guest.address)->requested, 1004);
    const auto last = small.take(1005);
    EXPECT_EQ(last.address, 2 * kApart + 1024);
    EXPECT_EQ(small.arena.blocks().size(), 3u);
    EXPECT_TRUE(small.give(guest.address));
    EXPECT_TRUE(small.give(last.address));
    small.give(first.address);
    EXPECT_EQ(small.arena.live_blocks(), 0);
  }
  EXPECT_EQ(small.arena.guests(), 6);
}

TEST(Lending, AGuestGoesElsewhereWhereTheLenderIsNotDone) {
  SmallArena small;
  small.take(1000);
  const auto lenders = small.take(1001);
  const auto other = small.take(1002);
  small.take(1003);
  small.arena.release(lenders.address);  // behind no event
  EXPECT_EQ(small.take(1004).source, Source::none);
  EXPECT_TRUE(small.arena.hand_over(other.address));  // its event has not happened yet
  EXPECT_EQ(small.take(1005).source, Source::none);
  EXPECT_EQ(small.arena.guests(), 0);
  EXPECT_EQ(small.arena.find(other.address)->requested, 1002);
}

// Behind the event of a later release all that its stream did before has happened, too; behind that
// of an earlier one it has not.
TEST(Lending, OnlyTheLastReleaseCounts) {
  memory::MemoryPlan plan;
  plan.alignment = 512;
  plan.bytes = 3072;
  plan.streams = {{{0, 2048}, 0, 0}, {{2048, 1024}, 0, 0}};
  plan.signatures.resize(1);
  plan.signatures[0].iterations = 3;
  plan.signatures[0].slots = {
      {0, 6, 1000, 1000, 0, false},    {1, 2, 1001, 1001, 2048, false},
      {1, 5, 500, 500, 2048, false},   {1, 5, 501, 501, 2560, false},
      {0, 5, 1003, 1003, 1024, false}, {0, 6, 1004, 1004, 2048, false, true},
  };
  ASSERT_TRUE(memory::check_plan(plan));
  for (const bool is_in_order : {true, false}) {
    PlannedArena arena(std::make_shared<const CompiledPlan>(compile_plan(plan)));
    for (uint32_t track = 0; track < 2; ++track) {
      arena.set_stream(track, stream_named(track));
      arena.place(track, kApart * (track + 1));
    }
    size_t at = 0;
    const auto next = [&](bool serves) {
      const memory::PlannedSlot& slot = plan.signatures[0].slots[at++ % 6];
      CudaStream* const stream = stream_named(slot.stream);
      if (serves) return arena.allocate(stream, slot.largest, 0);
      arena.follow(stream, slot.largest);
      return PlannedArena::Served{};
    };
    for (size_t i = 0; i < 6 * kGramRequests; ++i) next(false);
    next(true);
    arena.release(next(true).address);
    const auto one = next(true);
    const auto two = next(true);
    ASSERT_EQ(two.source, Source::planned);
    if (is_in_order) {
      arena.release(one.address);
      EXPECT_TRUE(arena.hand_over(two.address));
      arena.release(two.address);
    } else {
      EXPECT_TRUE(arena.hand_over(two.address));  // an event is recorded
      arena.release(one.address);                 // and does not know of this one
      arena.release(two.address);
    }
    next(true);
    EXPECT_EQ(next(true).source, is_in_order ? Source::planned : Source::none);
  }
}

TEST(Lending, PausesOnceALenderHadToGoElsewhere) {
  SmallArena small;
  const auto run = [&](bool returns) {
    std::vector<PlannedArena::Served> served;
    for (const int64_t size : {1000, 1001, 1002}) served.push_back(small.take(size));
    for (const size_t i : {1, 2}) {
      if (served[i].source != Source::none) small.give(served[i].address);
    }
    for (const int64_t size : {1003, 1004, 1005}) served.push_back(small.take(size));
    for (const size_t i : {0, 3, 4, 5}) {
      if (served[i].source == Source::none) continue;
      if (returns) small.arena.hand_over(served[i].address);
      small.arena.release(served[i].address);
    }
    return served;
  };
  EXPECT_EQ(run(false)[4].source, Source::planned);
  // The guests were given back behind no event: the lender's requests go elsewhere, and those of
  // the other stream, whose cells they still are, do not.
  EXPECT_TRUE(small.arena.is_lending());
  const auto after = run(true);
  EXPECT_EQ(after[1].source, Source::none);
  EXPECT_EQ(after[4].source, Source::planned);
  EXPECT_FALSE(small.arena.is_lending());
  for (int pass = 0; pass < 3; ++pass) {
    const auto later = run(true);
    EXPECT_EQ(later[1].source, Source::planned);
    EXPECT_EQ(later[4].source, Source::none);
  }
  EXPECT_EQ(small.arena.guests(), 4);
  for (int pass = 0; pass < 8; ++pass) run(true);
  EXPECT_TRUE(small.arena.is_lending());
  EXPECT_EQ(run(true)[4].source, Source::planned);
}

// A run that fetches what it offloaded on a stream of its own, as a log has it: blocks that both
// streams use are done with `delay` entries behind their release.
struct LoggedRun {
  explicit LoggedRun(size_t delay) {
    memory::generated::TrainingShape shape;
    shape.iterations = 8;
    shape.layers = 6;
    shape.hidden = 512;
    shape.vocabulary = 8000;
    shape.batch = 1;
    shape.offloads = true;
    run = memory::generated::generate_training_run(shape);
    std::vector<uint32_t> serials(run.trace.buffers.size());
    std::deque<std::pair<size_t, uint32_t>> pending;
    for (size_t i = 0; i < run.trace.events.size(); ++i) {
      for (; !pending.empty() && pending.front().first <= i; pending.pop_front()) {
        log.add_release(pending.front().second, RequestLog::Kind::release_done);
      }
      const memory::MemoryEvent& event = run.trace.events[i];
      const memory::BufferInfo& info = run.trace.buffers[event.buffer];
      if (event.kind == memory::EventKind::alloc) {
        serials[event.buffer] = log.add_request(info.requested_bytes, info.stream);
      } else if (run.release_delay[event.buffer] > 0) {
        log.add_release(serials[event.buffer], RequestLog::Kind::release_asked);
        pending.emplace_back(i + delay, serials[event.buffer]);
      } else {
        log.add_release(serials[event.buffer], RequestLog::Kind::release_done);
      }
    }
    understood = log.read(log.size());
    PlanQuestion question;
    question.is_out_of_time = [] { return false; };
    question.confirm = [](double) { return true; };
    attempt = plan_from(understood, question);
  }

  memory::generated::TrainingRun run;
  RequestLog log;
  RequestLog::Understood understood;
  PlanAttempt attempt;
};

TEST(Lending, APlanWithGuestsNeedsLessWhereTheDeviceKeepsUp) {
  const LoggedRun logged(2);
  ASSERT_TRUE(logged.attempt.refused.empty()) << logged.attempt.refused;
  ASSERT_TRUE(logged.attempt.lending);
  const memory::MemoryPlan& lending = *logged.attempt.lending;
  EXPECT_LT(lending.bytes, logged.attempt.plan.bytes);
  const auto compiled = std::make_shared<const CompiledPlan>(compile_plan(lending));
  const auto apart = std::make_shared<const CompiledPlan>(compile_plan(logged.attempt.plan));
  const auto bytes = [&](const auto& plan, bool keeps_up) {
    return predict(plan, logged.understood, logged.attempt.times, 512, keeps_up).planned_bytes;
  };
  EXPECT_LT(bytes(compiled, true), bytes(apart, true));
  EXPECT_GT(bytes(compiled, false), bytes(compiled, true));
  EXPECT_EQ(bytes(apart, false), bytes(apart, true));
}

TEST(Lending, NobodyIsAGuestWhereTheDeviceIsFarBehind) {
  const LoggedRun logged(400);
  ASSERT_TRUE(logged.attempt.refused.empty()) << logged.attempt.refused;
  if (!logged.attempt.lending) return;
  // What is left to guests is far from what the lender does.
  const LoggedRun near(2);
  const auto guests = [](const memory::MemoryPlan& plan) {
    return std::count_if(plan.signatures[0].slots.begin(), plan.signatures[0].slots.end(),
                         [](const memory::PlannedSlot& slot) { return slot.is_guest; });
  };
  EXPECT_LT(guests(*logged.attempt.lending), guests(*near.attempt.lending));
}

// Streams of a device that is behind: what was released is known to be done with only once an event
// that was recorded later on the same stream has happened.
class Device {
 public:
  // A release is numbered when the program makes it.
  uint64_t release(uint64_t stream) { return ++made_[stream]; }
  void record(uint64_t stream, uint64_t at) { events_[stream].emplace_back(at, made_[stream]); }
  bool has_happened(uint64_t stream, uint64_t number, uint64_t now) {
    std::deque<std::pair<uint64_t, uint64_t>>& events = events_[stream];
    for (; !events.empty() && events.front().first <= now; events.pop_front()) {
      known_[stream] = events.front().second;
    }
    return known_[stream] >= number;
  }

 private:
  std::map<uint64_t, uint64_t> made_;
  std::map<uint64_t, std::deque<std::pair<uint64_t, uint64_t>>> events_;  // due, releases before
  std::map<uint64_t, uint64_t> known_;
};

// Plays iterations of the run, some of it missing or late, over an arena, and sees that nobody gets
// bytes that are in use, or that the device may still be at work on for another stream.
class Shadow {
 public:
  Shadow(const LoggedRun& logged, uint64_t seed, uint64_t longest)
      : logged_(logged),
        arena_(std::make_shared<const CompiledPlan>(compile_plan(*logged.attempt.lending))),
        random_(seed),
        longest_(longest) {
    for (uint32_t track = 0; track < 2; ++track) {
      arena_.set_stream(track, stream_named(track));
      arena_.place(track, kApart * (track + 1));
    }
  }

  void play(double perturbed) {
    const memory::MemoryTrace& trace = logged_.run.trace;
    std::vector<int64_t> addresses(trace.buffers.size());
    for (size_t i = logged_.run.iterations[1]; i < trace.events.size(); ++i) {
      ++now_;
      complete();
      const memory::MemoryEvent& event = trace.events[i];
      const memory::BufferInfo& info = trace.buffers[event.buffer];
      const bool is_perturbed = static_cast<double>(random_() % 1000) < 1000 * perturbed;
      if (event.kind == memory::EventKind::alloc) {
        if (!is_perturbed) addresses[event.buffer] = take(info.stream, info.requested_bytes);
      } else if (addresses[event.buffer] != 0) {
        // Late ones are released with the next one that is.
        if (is_perturbed) {
          late_.push_back(addresses[event.buffer]);
          continue;
        }
        give(addresses[event.buffer], logged_.run.release_delay[event.buffer] > 0);
        for (; late_.size() > 10; late_.erase(late_.begin())) give(late_.front(), false);
      }
    }
    for (; !late_.empty(); late_.pop_back()) give(late_.back(), false);
  }
  [[nodiscard]] const PlannedArena& arena() const { return arena_; }
  size_t faults = 0;

 private:
  struct Block {
    int64_t end = 0;
    uint64_t stream = 0;
  };
  struct Left {  // bytes that were released, and by which release
    int64_t begin = 0;
    int64_t end = 0;
    uint64_t stream = 0;
    uint64_t number = 0;
  };
  struct Pending {
    int64_t address = 0;
    uint64_t stream = 0;  // that is awaited
    uint64_t due = 0;
  };

  int64_t take(uint64_t stream, int64_t size) {
    const PlannedArena::Served served =
        arena_.allocate(stream_named(stream), size, RequestLog::kNoSerial);
    if (served.source == Source::none) return 0;
    const int64_t begin = served.address;
    const int64_t end = begin + size;
    const auto after = live_.lower_bound(begin);
    if (after != live_.end() && after->first < end) ++faults;
    if (after != live_.begin() && std::prev(after)->second.end > begin) ++faults;
    std::erase_if(left_, [&](const Left& left) {
      if (left.begin >= end || left.end <= begin) return false;
      if (left.stream != stream && !device_.has_happened(left.stream, left.number, now_)) ++faults;
      return left.begin >= begin && left.end <= end;
    });
    live_[begin] = {end, stream};
    return begin;
  }

  void give(int64_t address, bool is_used_by_other) {
    const Block block = live_.at(address);
    const bool hands_over = arena_.hand_over(address);
    left_.push_back({address, block.end, block.stream, device_.release(block.stream)});
    std::vector<uint64_t> awaited;
    if (is_used_by_other) awaited.push_back(1 - block.stream);
    if (hands_over) awaited.push_back(block.stream);
    for (const uint64_t stream : awaited) {
      uint64_t& last = last_due_[stream];
      last = std::max(last, now_ + random_() % (longest_ + 1));
      device_.record(stream, last);
      pending_.push_back({address, stream, last});
    }
    if (awaited.empty()) finish(address);
  }

  void complete() {
    for (size_t i = 0; i < pending_.size();) {
      if (pending_[i].due > now_) {
        ++i;
        continue;
      }
      const int64_t address = pending_[i].address;
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
      const bool is_last =
          std::none_of(pending_.begin(), pending_.end(),
                       [&](const Pending& other) { return other.address == address; });
      if (is_last) finish(address);
    }
  }
  void finish(int64_t address) {
    live_.erase(address);
    arena_.release(address);
  }

  const LoggedRun& logged_;
  PlannedArena arena_;
  std::mt19937_64 random_;
  uint64_t longest_;
  uint64_t now_ = 0;
  Device device_;
  std::map<int64_t, Block> live_;
  std::vector<Left> left_;
  std::vector<Pending> pending_;
  std::map<uint64_t, uint64_t> last_due_;
  std::vector<int64_t> late_;
};

TEST(Lending, NobodyGetsWhatTheDeviceIsStillAtWorkOn) {
  const LoggedRun logged(2);
  ASSERT_TRUE(logged.attempt.lending);
  int64_t guests = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const uint64_t longest = std::vector<uint64_t>{0, 2, 20, 500}[seed % 4];
    Shadow shadow(logged, seed, longest);
    shadow.play(0);
    for (int pass = 0; pass < 3; ++pass) shadow.play(seed % 3 == 0 ? 0.0 : 0.02);
    EXPECT_EQ(shadow.faults, 0u) << seed;
    guests += shadow.arena().guests();
  }
  EXPECT_GT(guests, 100);
}

}  // namespace
}  // namespace headroom::runtime
