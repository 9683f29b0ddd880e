#include "timing/host_replay.h"

#include <gtest/gtest.h>

namespace headroom::timing {
namespace {

// A launch costs 2 and reaches the device after 5; 1 between kernels; 3 to wake up, 4 for a wait.
Program program_with(uint32_t streams = 1) {
  Program program;
  program.latencies = {{5, 5, 1, 1, 3, 4}};
  program.streams = streams;
  return program;
}

void launch(Program& program, int64_t gap, int64_t duration, uint8_t group = 0,
            uint32_t stream = 0) {
  const auto at = static_cast<uint32_t>(program.calls.size());
  const auto kernel = static_cast<uint32_t>(program.kernels.size());
  program.calls.push_back(
      {CallKind::launch, at == 0 ? kNoCall : at - 1, gap, 2, kernel, 1, kNoKernel, false});
  ReplayKernel made;
  made.stream = stream;
  made.group = group;
  made.duration_ns = duration;
  program.kernels.push_back(made);
  program.last_call = at;
}

void wait(Program& program, int64_t gap) {
  const auto at = static_cast<uint32_t>(program.calls.size());
  program.calls.push_back({CallKind::wait, at - 1, gap, 0, 0, 0, kNoKernel, true});
  program.last_call = at;
}

TEST(HostReplay, AHostThatIsSlowerSetsThePace) {
  Program program = program_with();
  launch(program, 10, 20);  // called at 10, runs 15 to 35
  launch(program, 50, 20);  // called at 62, runs 67 to 87
  program.tail_ns = 6;
  const ProgramTime replayed = simulate(program);
  EXPECT_DOUBLE_EQ(replayed.device_ns, 87);
  EXPECT_DOUBLE_EQ(replayed.host_ns, 70);
  EXPECT_DOUBLE_EQ(replayed.total_ns, 87);
  // Kernels in no time: 67 remains, where Amdahl's law knows no bound.
  ReplayChange change;
  change.group_factors = {0.0};
  EXPECT_DOUBLE_EQ(simulate(program, change).device_ns, 67);
}

TEST(HostReplay, ADeviceThatIsSlowerQueues) {
  Program program = program_with();
  launch(program, 0, 100);  // 5 to 105
  launch(program, 0, 100);  // 106 to 206
  wait(program, 0);         // until 209
  EXPECT_DOUBLE_EQ(simulate(program).host_ns, 209);
  ReplayChange change;
  change.host_factor = 0.5;
  EXPECT_DOUBLE_EQ(simulate(program, change).total_ns, 209);
}

TEST(HostReplay, AWaitForWhatIsDoneCostsItself) {
  Program program = program_with();
  launch(program, 0, 10);
  wait(program, 500);  // at 502
  EXPECT_DOUBLE_EQ(simulate(program).host_ns, 506);
}

TEST(HostReplay, ACopyThatIsWaitedFor) {
  Program program = program_with();
  launch(program, 0, 100);
  program.calls.push_back({CallKind::copy_and_wait, 0, 0, 0, 1, 1, kNoKernel, false});
  ReplayKernel copy;
  copy.duration_ns = 10;
  program.kernels.push_back(copy);  // 106 to 116
  program.last_call = 1;
  EXPECT_DOUBLE_EQ(simulate(program).host_ns, 119);
}

TEST(HostReplay, StreamsRunSideBySideUnlessOneWaits) {
  Program program = program_with(2);
  launch(program, 0, 100, 0, 0);  // 5 to 105
  launch(program, 0, 50, 0, 1);   // called at 2: 7 to 57
  EXPECT_DOUBLE_EQ(simulate(program).device_ns, 105);
  program.kernels[1].waits_for = 0;  // 106 to 156
  EXPECT_DOUBLE_EQ(simulate(program).device_ns, 156);
}

TEST(HostReplay, EarlierWorkChangesWithItsGroup) {
  Program program = program_with();
  ReplayKernel earlier;
  earlier.duration_ns = 100;
  earlier.group = 2;
  program.kernels = {earlier, earlier};  // 0 to 100, 101 to 201, and then 202 to 212
  program.earlier_count = 2;
  launch(program, 0, 10);
  EXPECT_DOUBLE_EQ(simulate(program).device_ns, 212);
  ReplayChange change;
  change.group_factors = {1.0, 1.0, 0.5};
  EXPECT_DOUBLE_EQ(simulate(program, change).device_ns, 112);
}

TEST(HostReplay, CommunicationHidden) {
  Program program = program_with(2);
  launch(program, 0, 10, 0, 0);
  launch(program, 0, 500, 1, 1);
  program.kernels[1].is_communication = true;
  wait(program, 0);
  EXPECT_DOUBLE_EQ(simulate(program).total_ns, 510);
  ReplayChange change;
  change.hides_communication = true;
  EXPECT_DOUBLE_EQ(simulate(program, change).total_ns, 18);
}

TEST(HostReplay, AGraphTakesTheHostOut) {
  Program program = program_with();
  launch(program, 30, 10);
  launch(program, 100, 10);
  launch(program, 100, 10);
  ReplayChange change;
  change.in_graph = true;
  // The first launch stays where it was: 35 to 45, then 46 to 56 and 57 to 67.
  EXPECT_DOUBLE_EQ(simulate(program, change).device_ns, 67);
}

// A program with everything in it, from a seed.
Program random_program(uint32_t seed) {
  uint32_t state = seed * 2654435761U + 1;
  const auto pick = [&](uint32_t below) {
    state = state * 1664525U + 1013904223U;
    return (state >> 8) % below;
  };
  Program program = program_with(3);
  for (int i = 0; i < 200; ++i) {
    const auto at = static_cast<uint32_t>(program.calls.size());
    if (at > 0 && pick(8) == 0) {
      wait(program, pick(50));
      program.calls.back().waits_for_all = pick(2) == 0;
      if (!program.kernels.empty())
        program.calls.back().waits_for = pick(static_cast<uint32_t>(program.kernels.size()));
    } else {
      launch(program, pick(60), pick(100), static_cast<uint8_t>(pick(3)), pick(3));
      const auto kernel = static_cast<uint32_t>(program.kernels.size() - 1);
      if (kernel > 0 && pick(5) == 0) program.kernels[kernel].waits_for = pick(kernel);
      if (at > 1 && pick(6) == 0) program.calls[at].after = pick(at);
    }
  }
  return program;
}

TEST(HostReplay, FasterIsNeverSlower) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Program program = random_program(seed);
    double last = simulate(program).total_ns;
    for (const double factor : {0.9, 0.5, 0.1, 0.0}) {
      ReplayChange change;
      change.group_factors = {factor, 1.0, factor};
      const double total = simulate(program, change).total_ns;
      EXPECT_LE(total, last + 1e-9) << seed;
      last = total;
    }
    ReplayChange host;
    host.host_factor = 0.5;
    EXPECT_LE(simulate(program, host).total_ns, simulate(program).total_ns + 1e-9) << seed;
    ReplayChange hidden;
    hidden.hides_communication = true;
    EXPECT_LE(simulate(program, hidden).total_ns, simulate(program).total_ns + 1e-9) << seed;
  }
}

}  // namespace
}  // namespace headroom::timing
