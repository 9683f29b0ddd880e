#include "timing/step_replay.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace headroom::timing {
namespace {

using op::OpKind;
using step::OperatorCall;
using step::Peers;
using step::Phase;

struct Timed {
  std::vector<OperatorCall> calls;
  std::vector<double> seconds;
  void add(const OperatorCall& call, double taken) {
    calls.push_back(call);
    seconds.push_back(taken);
  }
  void add(const Timed& more) {
    calls.insert(calls.end(), more.calls.begin(), more.calls.end());
    seconds.insert(seconds.end(), more.seconds.begin(), more.seconds.end());
  }
};

OperatorCall computing(uint16_t awaits = 0) {
  return {.kind = OpKind::add, .phase = Phase::forward, .awaits = awaits};
}
OperatorCall sending(OpKind kind, Peers peers, uint16_t awaits = 0) {
  return {.kind = kind, .phase = Phase::forward, .peers = peers, .awaits = awaits};
}

// A step of some calls, others so many times, and others behind them: as marks and written out.
struct Step {
  Timed before, again, behind;

  [[nodiscard]] Timed once() const {
    Timed all = before;
    all.add(again);
    all.add(behind);
    return all;
  }
  [[nodiscard]] RepeatedCalls repeated(int64_t times) const {
    return {before.calls.size(), again.calls.size(), times};
  }
  [[nodiscard]] Replayed marked(int64_t times, const Pace& pace = {}) const {
    const Timed all = once();
    return replay(all.calls, all.seconds, pace, repeated(times));
  }
  [[nodiscard]] Replayed written_out(int64_t times, const Pace& pace = {}) const {
    Timed all = before;
    for (int64_t i = 0; i < times; ++i) all.add(again);
    all.add(behind);
    return replay(all.calls, all.seconds, pace, {});
  }
};

// A gather of parameters outlasts many micro-batches, which then cost no less for it.
TEST(StepReplay, AGatherBesideMicroBatchesHidesNoneOfThem) {
  Step step;
  step.before.add(sending(OpKind::all_gather, Peers::data), 100);
  step.again.add(computing(), 1);
  step.behind.add(computing(step::kAwaitsAll), 1);
  EXPECT_DOUBLE_EQ(step.marked(4).seconds, 101);
  EXPECT_DOUBLE_EQ(step.marked(99).seconds, 101);
  EXPECT_DOUBLE_EQ(step.marked(1000).seconds, 1001);
  EXPECT_DOUBLE_EQ(step.marked(1000).exposed, 0);
  EXPECT_DOUBLE_EQ(step.marked(50).exposed, 50);
  const Timed all = step.once();
  EXPECT_DOUBLE_EQ(steady_seconds(all.calls, all.seconds, {}, step.repeated(4)), 1);
}

// Sends that outlast what is computed pile up until somebody waits for them.
TEST(StepReplay, WhatIsSentRunsIntoTheNextMicroBatch) {
  Step step;
  step.again.add(sending(OpKind::all_reduce, Peers::data), 3);
  step.again.add(computing(), 2);
  step.behind.add(computing(step::kAwaitsAll), 1);
  EXPECT_DOUBLE_EQ(step.marked(1'000'000).seconds, 3'000'001);
  EXPECT_DOUBLE_EQ(step.marked(1'000'000).exposed, 1'000'000);
}

TEST(StepReplay, NoRepetitionIsNone) {
  Step step;
  step.before.add(computing(), 1);
  step.again.add(computing(), 2);
  step.behind.add(computing(), 4);
  EXPECT_DOUBLE_EQ(step.marked(0).seconds, 5);
  EXPECT_DOUBLE_EQ(step.marked(0).compute, 5);
  EXPECT_DOUBLE_EQ(step.marked(2).seconds, 9);
}

TEST(StepReplay, WhatIsAddedIsFound) {
  Step step;
  step.before.add(computing(), 1);
  step.again.add(sending(OpKind::all_reduce, Peers::tensor), 2);
  step.again.add(computing(1), 2);
  step.behind.add(computing(step::kAwaitsAll), 4);
  Timed twice = step.before;
  twice.add(step.again);
  twice.add(step.again);
  twice.add(step.behind);
  const auto added = added_calls(twice.calls, step.once().calls);
  ASSERT_TRUE(added);
  EXPECT_EQ(added->count, step.again.calls.size());
  const Replayed marked = replay(twice.calls, twice.seconds, {}, {added->first, added->count, 9});
  EXPECT_DOUBLE_EQ(marked.seconds, step.written_out(10).seconds);
  EXPECT_FALSE(added_calls(step.once().calls, twice.calls));
  Timed other = twice;
  other.calls.back().bytes_read = 1;
  EXPECT_FALSE(added_calls(other.calls, step.once().calls));
}

// The same from the longer one alone, where what is added stands twice in a row.
TEST(StepReplay, WhatStandsTwiceInARowIsFoundAlone) {
  Step step;
  step.before.add(computing(), 1);
  step.again.add(sending(OpKind::all_reduce, Peers::tensor), 2);
  step.again.add(computing(1), 2);
  step.behind.add(sending(OpKind::all_reduce, Peers::tensor), 2);  // as another one would begin
  step.behind.add(computing(step::kAwaitsAll), 4);
  Timed twice = step.before;
  twice.add(step.again);
  twice.add(step.again);
  twice.add(step.behind);
  const auto added = added_calls(twice.calls, step.once().calls);
  const auto alone = calls_twice_in_a_row(twice.calls, 1, 2);
  ASSERT_TRUE(added && alone);
  EXPECT_EQ(alone->first, added->first);
  EXPECT_EQ(alone->count, added->count);
  EXPECT_FALSE(calls_twice_in_a_row(twice.calls, 0, 2));
  EXPECT_FALSE(calls_twice_in_a_row(twice.calls, 3, 2));
  EXPECT_FALSE(calls_twice_in_a_row(twice.calls, 1, 4));
  EXPECT_FALSE(calls_twice_in_a_row(twice.calls, 1, 0));
  EXPECT_FALSE(calls_twice_in_a_row(twice.calls, 99, 1));
}

// It launches beside what it launched before, and costs what it is slower by.
TEST(StepReplay, AHostThatIsAheadCostsTheFirstLaunchAlone) {
  Timed timed;
  for (int i = 0; i < 10; ++i) timed.add(computing(), 5);
  EXPECT_DOUBLE_EQ(replay(timed.calls, timed.seconds, {1, 1, {.launch = 2}}, {}).seconds, 52);
  EXPECT_DOUBLE_EQ(replay(timed.calls, timed.seconds, {1, 1, {.launch = 7}}, {}).seconds, 75);
}

// What an expert's tokens are is known when the kernel is done: what is launched next is late.
TEST(StepReplay, TheHostWaitsForWhatAKernelFound) {
  Timed timed;
  timed.add(computing(), 50);
  timed.add({.kind = OpKind::nonzero, .phase = Phase::forward}, 5);
  timed.add(computing(), 5);
  const Pace pace{1, 1, {.launch = 2}};
  EXPECT_DOUBLE_EQ(replay(timed.calls, timed.seconds, pace, {}).seconds, 2 + 50 + 5 + 2 + 5);
}

// Units of a kernel each, let go of behind it: the third is gathered once the first is done with.
TEST(StepReplay, UnderFsdp1TheHostIsTwoUnitsAhead) {
  Timed timed;
  for (const double taken : {100.0, 10.0, 10.0}) {
    OperatorCall gather = sending(OpKind::all_gather, Peers::data);
    gather.let_go = timed.calls.empty() ? 0 : 1;
    timed.add(gather, 1);
    timed.add(computing(1), taken);
  }
  const Pace pace{1, 1, {.launch = 1, .unit = 60}};
  // The first kernel is done at 161; a host that went on would have the third launched at 183.
  EXPECT_DOUBLE_EQ(replay(timed.calls, timed.seconds, pace, {}).seconds, 161 + 60 + 1 + 10);
  for (OperatorCall& call : timed.calls) call.let_go = 0;
  EXPECT_DOUBLE_EQ(replay(timed.calls, timed.seconds, pace, {}).seconds, 183 + 10);
}

using Draws = std::mt19937;

double up_to(double most, Draws& draws) {
  return std::uniform_real_distribution<double>(0, most)(draws);
}

template <typename Value, size_t kCount>
Value one_of(const std::array<Value, kCount>& values, Draws& draws) {
  return values[draws() % kCount];
}

Timed any_calls(Draws& draws) {
  constexpr std::array kKinds{OpKind::add, OpKind::nonzero, OpKind::all_gather, OpKind::all_reduce,
                              OpKind::send_receive};
  constexpr std::array<uint16_t, 8> kAwaits{0, 0, 0, 0, 1, 2, 5, step::kAwaitsAll};
  constexpr std::array kPeers{Peers::data, Peers::tensor, Peers::context, Peers::pipeline};
  Timed timed;
  for (size_t count = draws() % 9; count > 0; --count) {
    const OpKind kind = one_of(kKinds, draws);
    const uint16_t awaits = one_of(kAwaits, draws);
    OperatorCall call = sending(kind, one_of(kPeers, draws), awaits);
    if (!is_collective(call)) call.peers = Peers::none;
    call.let_go = draws() % 4 == 0 ? 1 + draws() % 2 : 0;
    timed.add(call, up_to(100, draws));
  }
  return timed;
}

TEST(StepReplay, IsThatOfAllCallsWrittenOut) {
  Draws draws(1);
  for (int i = 0; i < 5000; ++i) {
    const Step step{any_calls(draws), any_calls(draws), any_calls(draws)};
    const bool has_host = draws() % 2 == 0;
    const HostCosts host{has_host ? up_to(60, draws) : 0, has_host ? up_to(200, draws) : 0};
    const Pace pace{up_to(3, draws), up_to(3, draws), host};
    const auto times = static_cast<int64_t>(draws() % 70);
    const Replayed marked = step.marked(times, pace);
    const Replayed written = step.written_out(times, pace);
    const double small = 1e-9 * (1 + written.compute + written.communication);
    ASSERT_NEAR(marked.seconds, written.seconds, small) << i;
    ASSERT_NEAR(marked.compute, written.compute, small) << i;
    ASSERT_NEAR(marked.communication, written.communication, small) << i;
    ASSERT_NEAR(marked.exposed, written.exposed, small) << i;
    ASSERT_GE(marked.exposed, 0) << i;
    ASSERT_NEAR(marked.seconds, marked.compute + marked.exposed, small) << i;
    ASSERT_GE(marked.seconds, marked.compute + marked.blocking - small) << i;
  }
}

}  // namespace
}  // namespace headroom::timing
