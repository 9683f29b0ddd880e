// PlannedArena against a naive shadow: runs that do what the plan says, and runs that do not.
#include "runtime/planned_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/units.h"
#include "memory/packing/plan_synthesizer.h"
#include "memory/plan/plan_checker.h"
#include "runtime/request_log.h"

namespace headroom::runtime {
namespace {

// A plan of one stream: a random program's slots, packed.
memory::MemoryPlan random_plan(uint64_t seed, uint32_t slots, uint32_t signatures) {
  std::mt19937_64 random(seed);
  memory::MemoryPlan plan;
  plan.alignment = 512;
  plan.streams.resize(1);
  int64_t arena = 0;
  for (uint32_t s = 0; s < signatures; ++s) {
    memory::SignaturePlan signature;
    signature.iterations = 3;
    memory::PackingProblem problem;
    problem.alignment = 512;
    for (uint32_t i = 0; i < slots; ++i) {
      memory::PlannedSlot slot;
      const auto left = slots - i;
      slot.ends = i + 1 + static_cast<uint32_t>(random() % std::min<uint64_t>(left, 40));
      // Of both kinds: small ones have no place out of their turn.
      slot.smallest = slot.largest = 1 + static_cast<int64_t>(random() % 4'000'000);
      problem.requests.push_back({i, slot.ends, slot.largest});
      signature.slots.push_back(slot);
    }
    memory::SynthesisOptions options;
    options.depth = memory::SynthesisDepth::quick;
    options.threads = 1;
    const auto synthesis = memory::PlanSynthesizer(options).synthesize(problem);
    for (uint32_t i = 0; i < slots; ++i) signature.slots[i].offset = synthesis.solution.offsets[i];
    arena = std::max(arena, synthesis.solution.bytes);
    plan.signatures.push_back(std::move(signature));
  }
  plan.bytes = round_up(arena, 512);
  plan.streams[0].range = {0, plan.bytes};
  EXPECT_TRUE(memory::check_plan(plan));
  return plan;
}

TEST(RequestLog, AReleaseOfWhatItNeverSawIsLeftOut) {
  RequestLog log;
  const uint32_t known = log.add_request(100, 0);
  log.add_release(known + 7, RequestLog::Kind::release_done);
  log.add_release(RequestLog::kNoSerial, RequestLog::Kind::release_done);
  log.add_release(known, RequestLog::Kind::release_done);
  const auto understood = log.read(log.size());
  ASSERT_EQ(understood.requests.size(), 1U);
  EXPECT_EQ(understood.requests[0].released, 3);
}

// Plays a signature's iteration, with changes, and sees that nothing overlaps.
class Player {
 public:
  explicit Player(const memory::MemoryPlan& plan)
      : plan_(plan), arena_(std::make_shared<const CompiledPlan>(compile_plan(plan))) {
    arena_.set_stream(0, nullptr);
    arena_.place(0, kBase);
  }

  void play(uint32_t signature, double perturbed, std::mt19937_64& random) {
    const auto& slots = plan_.signatures[signature].slots;
    std::vector<int64_t> addresses(slots.size(), 0);
    const auto happens = [&] { return static_cast<double>(random() % 1000) < 1000 * perturbed; };
    for (uint32_t i = 0; i < slots.size(); ++i) {
      for (uint32_t j = 0; j < i; ++j) {
        if (slots[j].ends == i && addresses[j] != 0 && !happens()) release(addresses[j]);
      }
      if (happens()) continue;  // missing
      if (happens()) {          // a stranger, for a while
        int64_t address = 0;
        allocate(1 + static_cast<int64_t>(random() % 2'000'000), address);
        if (address != 0) late_.push_back(address);
      }
      while (late_.size() > 20) {
        release(late_.front());
        late_.erase(late_.begin());
      }
      allocate(slots[i].largest, addresses[i]);
    }
    for (int64_t& address : addresses) {
      if (address == 0) continue;
      if (happens()) {
        late_.push_back(address);
      } else {
        release(address);
      }
    }
  }

  void allocate(int64_t size, int64_t& address) {
    const PlannedArena::Served served = arena_.allocate(nullptr, size, RequestLog::kNoSerial);
    ++asked;
    if (served.source == PlannedArena::Source::none) return;
    ++(served.source == PlannedArena::Source::planned ? planned : reused);
    address = served.address;
    ASSERT_GE(address, kBase);
    ASSERT_LE(address + size, kBase + plan_.bytes);
    const auto after = live_.lower_bound(address);
    if (after != live_.end()) {
      ASSERT_LE(address + size, after->first);
    }
    if (after != live_.begin()) {
      ASSERT_LE(std::prev(after)->first + std::prev(after)->second, address);
    }
    live_[address] = size;
    ASSERT_NE(arena_.find(address), nullptr);
    ASSERT_EQ(arena_.find(address)->requested, size);
    ASSERT_EQ(arena_.live_blocks(), static_cast<int64_t>(live_.size()));
  }
  void release(int64_t& address) {
    arena_.release(address);
    live_.erase(address);
    address = 0;
  }

  size_t asked = 0, planned = 0, reused = 0;
  static constexpr int64_t kBase = int64_t{1} << 32;
  std::vector<int64_t> late_;

 private:
  const memory::MemoryPlan& plan_;
  PlannedArena arena_;
  std::map<int64_t, int64_t> live_;
};

TEST(PlannedArena, ServesWhatWasPlannedOnceItKnowsWhereItIs) {
  const memory::MemoryPlan plan = random_plan(1, 300, 1);
  Player player(plan);
  std::mt19937_64 random(1);
  for (int pass = 0; pass < 10; ++pass) player.play(0, 0, random);
  // The first requests find its place, all others are in their slots.
  EXPECT_LE(player.asked - player.planned, kGramRequests);
}

TEST(PlannedArena, NeverServesWhatIsInUse) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const memory::MemoryPlan plan = random_plan(seed, 200, 3);
    Player player(plan);
    std::mt19937_64 random(seed);
    for (int pass = 0; pass < 30; ++pass) {
      player.play(static_cast<uint32_t>(random() % 3), pass < 5 ? 0 : 0.05, random);
      if (HasFatalFailure()) FAIL() << "seed " << seed << " pass " << pass;
    }
    EXPECT_GT(player.planned + player.reused, 2 * player.asked / 5) << "seed " << seed;
  }
}

TEST(PlannedArena, FindsItsPlaceAgainAfterWhatIsMissing) {
  const memory::MemoryPlan plan = random_plan(3, 400, 1);
  Player player(plan);
  std::mt19937_64 random(3);
  for (int pass = 0; pass < 3; ++pass) player.play(0, 0, random);
  // 150 requests are left out: more than it looks ahead.
  const size_t before = player.asked - player.planned;
  const auto& slots = plan.signatures[0].slots;
  std::map<uint32_t, int64_t> live;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (i >= 100 && i < 250) continue;
    for (auto at = live.begin(); at != live.end();) {
      const bool is_over = slots[at->first].ends <= i;
      if (is_over && at->second != 0) player.release(at->second);
      at = is_over ? live.erase(at) : std::next(at);
    }
    player.allocate(slots[i].largest, live[i]);
  }
  EXPECT_LE(player.asked - player.planned - before, 2 * kGramRequests);
}

TEST(PlannedArena, TheOtherSignatureIsKnownByItsFirstRequest) {
  const memory::MemoryPlan plan = random_plan(4, 200, 3);
  Player player(plan);
  std::mt19937_64 random(4);
  for (uint32_t pass = 0; pass < 12; ++pass) player.play(pass % 3, 0, random);
  EXPECT_LE(player.asked - player.planned, kGramRequests);
}

memory::MemoryPlan plan_of(std::vector<memory::PlannedSlot> slots, int64_t bytes) {
  memory::MemoryPlan plan;
  plan.alignment = 512;
  plan.bytes = bytes;
  plan.streams = {{{0, bytes}, 0, 0}};
  plan.signatures = {{3, std::move(slots), {}, {}}};
  EXPECT_TRUE(memory::check_plan(plan));
  return plan;
}

memory::PlannedSlot elsewhere(uint32_t number, int64_t size) {
  memory::PlannedSlot slot{0, number + 1, size, size, 0};
  slot.is_elsewhere = true;
  return slot;
}

// A batch that is there until the next one is: it has no bytes in the plan, comes in its turn, and
// the slot of another request of its size is that one's.
TEST(PlannedArena, WhatLiesElsewhereIsInNobodysWay) {
  constexpr int64_t kLarge = 8 * kMiB;
  const memory::MemoryPlan plan = plan_of({elsewhere(0, kLarge),
                                           {0, 3, kLarge, kLarge, 0},
                                           {0, 4, kMiB, kMiB, kLarge},
                                           elsewhere(3, 4)},
                                          2 * kLarge);
  PlannedArena arena(std::make_shared<const CompiledPlan>(compile_plan(plan)));
  arena.set_stream(0, nullptr);
  arena.place(0, int64_t{1} << 40);
  using Source = PlannedArena::Source;
  for (int i = 0; i < 40; ++i) arena.follow(nullptr, plan.signatures[0].slots[i % 4].largest);
  // The request that shows a pass to begin is such a one.
  ASSERT_TRUE(arena.follow(nullptr, kLarge).begins_pass);
  EXPECT_EQ(arena.serve_first(nullptr, kLarge, 1).source, Source::none);
  for (int i = 1; i < 4; ++i) arena.follow(nullptr, plan.signatures[0].slots[i].largest);
  for (int pass = 0; pass < 4; ++pass) {
    const auto first = arena.allocate(nullptr, kLarge, 1);
    EXPECT_EQ(first.source, Source::none);
    EXPECT_TRUE(first.begins_pass);
    const auto own = arena.allocate(nullptr, kLarge, 1);
    const auto other = arena.allocate(nullptr, kMiB, 1);
    EXPECT_EQ(own.source, Source::planned);
    EXPECT_EQ(other.source, Source::planned);
    EXPECT_EQ(arena.allocate(nullptr, 4, 1).source, Source::none);
    arena.release(own.address);
    arena.release(other.address);
  }
  EXPECT_EQ(arena.live_blocks(), 0);
}

// It would stay in the way of a large slot for as long as it lives.
TEST(PlannedArena, WhatIsSmallAndNotInItsTurnLiesElsewhere) {
  constexpr int64_t kLarge = 8 * kMiB;
  std::vector<memory::PlannedSlot> slots;
  for (uint32_t i = 0; i < 16; ++i) {
    const int64_t size = kLarge + 512 * (i % 5);
    slots.push_back({0, i + 1, size, size, 0});
  }
  slots.push_back({0, 17, 512, 512, 0});
  const memory::MemoryPlan plan = plan_of(std::move(slots), 2 * kLarge);
  PlannedArena arena(std::make_shared<const CompiledPlan>(compile_plan(plan)));
  arena.set_stream(0, nullptr);
  arena.place(0, int64_t{1} << 40);
  const auto size_of = [&](size_t i) { return plan.signatures[0].slots[i % 17].largest; };
  for (size_t i = 0; i < 34; ++i) arena.follow(nullptr, size_of(i));
  for (size_t i = 0; i < 17; ++i) {
    if (i == 3) {
      EXPECT_EQ(arena.allocate(nullptr, 512, 1).source,
                PlannedArena::Source::none);  // a slot ahead's
      EXPECT_EQ(arena.allocate(nullptr, 777, 1).source, PlannedArena::Source::none);  // nobody's
    }
    const auto served = arena.allocate(nullptr, size_of(i), 1);
    if (i == 16) continue;  // it was taken for the one that came early
    ASSERT_EQ(served.source, PlannedArena::Source::planned) << i;
    arena.release(served.address);
  }
}

TEST(PlannedArena, AStreamThatThePlanDoesNotKnowIsNotServed) {
  const memory::MemoryPlan plan = random_plan(5, 50, 1);
  PlannedArena arena(std::make_shared<const CompiledPlan>(compile_plan(plan)));
  arena.set_stream(0, nullptr);
  auto* const other = reinterpret_cast<CudaStream*>(uintptr_t{16});
  EXPECT_EQ(arena.allocate(other, plan.signatures[0].slots[0].largest, 0).source,
            PlannedArena::Source::none);
}

// The request that shows a pass to begin is the plan's own: it does not lie beside it.
TEST(PlannedArena, ServesWhatItFollowedLast) {
  const memory::MemoryPlan plan = random_plan(7, 40, 1);
  const auto& slots = plan.signatures[0].slots;
  PlannedArena arena(std::make_shared<const CompiledPlan>(compile_plan(plan)));
  arena.set_stream(0, nullptr);
  arena.place(0, int64_t{1} << 40);
  EXPECT_EQ(arena.serve_first(nullptr, slots[0].largest, 1).source, PlannedArena::Source::none);
  bool begins = false;
  for (size_t i = 0; i < slots.size() + 1; ++i) {
    begins = arena.follow(nullptr, slots[i % slots.size()].largest).begins_pass;
  }
  ASSERT_TRUE(begins);
  EXPECT_EQ(arena.serve_first(nullptr, slots[0].largest + 512, 1).source,
            PlannedArena::Source::none);
  const auto served = arena.serve_first(nullptr, slots[0].largest, 1);
  ASSERT_EQ(served.source, PlannedArena::Source::planned);
  EXPECT_EQ(served.address, (int64_t{1} << 40) + slots[0].offset);
  // Once: from here on the plan serves by itself.
  EXPECT_EQ(arena.serve_first(nullptr, slots[0].largest, 2).source, PlannedArena::Source::none);
  EXPECT_EQ(arena.allocate(nullptr, slots[1].largest, 3).source, PlannedArena::Source::planned);
  arena.release(served.address);
}

}  // namespace
}  // namespace headroom::runtime
