// Plans that are kept in files, through the C ABI over the fake driver.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "memory/plan/plan_file.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_child.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/in_child.h"
#include "runtime/fake/made_up_steps.h"

namespace headroom {
namespace {

using namespace runtime::fake;

// What a run came to, told by its child through a pipe.
struct Told {
  int64_t reserved_peak = 0;
  int64_t planned = 0;
  int64_t steps_before = 0;  // that a plan served
};

// 40 steps of the same program, with a plan to begin with, a place for the one that is made, or
// both.
Told steps_in_child(const std::string& plan_path, const std::string& plan_out, int mode,
                    const std::string& reported) {
  int ends[2] = {};
  EXPECT_EQ(pipe(ends), 0);
  in_child([&] {
    set_up(256);
    headroom_configuration made = configuration();
    made.mode = mode;
    if (!plan_path.empty()) made.plan_path = plan_path.c_str();
    if (!plan_out.empty()) made.plan_out = plan_out.c_str();
    IN_CHILD(headroom_configure(&made) == 0);
    Told told;
    std::vector<void*> weights;
    for (int i = 0; i < 40; ++i) {
      if (statistics().is_planned == 0) ++told.steps_before;
      run_step(i == 0, weights);
      if (plan_out.empty()) continue;
      const int most_ms = statistics().is_planned != 0 ? 10 : 100;
      std::this_thread::sleep_for(std::chrono::milliseconds(most_ms));
    }
    IN_CHILD(report().find(reported) != std::string::npos);
    told.reserved_peak = statistics().reserved_bytes.peak;
    told.planned = statistics().planned_requests;
    IN_CHILD(write(ends[1], &told, sizeof told) == sizeof told);
    headroom_finish();
    IN_CHILD(is_alone());  // the planner is gone
    headroom_finish();
    run_step(false, weights);
  });
  Told told;
  close(ends[1]);  // else a child that died would be waited for
  EXPECT_EQ(read(ends[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
  close(ends[0]);
  return told;
}

TEST(Runtime, APlanIsKeptAndTheNextRunBeginsWithIt) {
  const std::string path = path_of_this_test();
  const std::string pattern = path + ".%d.%r";
  const Told first = steps_in_child("", pattern, HEADROOM_MODE_RUN, "\"from_file\": false");
  EXPECT_GT(first.planned, 0);
  const Told second = steps_in_child(pattern, pattern, HEADROOM_MODE_RUN, "\"from_file\": true");
  EXPECT_LT(second.steps_before, first.steps_before);
  EXPECT_LE(second.steps_before, 3);
  EXPECT_GE(second.planned, 36 * 120);  // all requests of the steps after it, in their slots
  EXPECT_LE(second.reserved_peak, first.reserved_peak);
  // One of another alignment than ours would hand out what is not aligned.
  memory::MemoryPlan bytewise;
  bytewise.alignment = 256;
  bytewise.bytes = 1024;
  bytewise.streams = {{{0, 1024}, 0, 0}};
  bytewise.signatures.resize(1);
  bytewise.signatures[0].slots = {{0, 1, 100, 100, 256, false}};
  std::ofstream(path + ".256", std::ios::binary) << *memory::plan_file(bytewise);
  const Told unaligned =
      steps_in_child(path + ".256", "", HEADROOM_MODE_SERVE, "no multiple of 512 B");
  EXPECT_EQ(unaligned.planned, 0);
  std::remove((path + ".256").c_str());
  // A damaged one is refused, and the run goes on.
  std::ofstream(path + ".0.0", std::ios::binary | std::ios::in | std::ios::out).seekp(40).put('x');
  const Told damaged = steps_in_child(path + ".0.0", "", HEADROOM_MODE_SERVE, "checksum");
  EXPECT_EQ(damaged.planned, 0);
  std::remove((path + ".0.0").c_str());
}

TEST(Runtime, APlanThatCannotBeKeptServesAndIsToldOf) {
  const std::string nowhere = path_of_this_test() + "/plan";
  const Told told = steps_in_child("", nowhere, HEADROOM_MODE_RUN,
                                   "\"not_kept\": \"" + nowhere + ": cannot write the plan: ");
  EXPECT_GT(told.planned, 0);
}

// An iteration in two streams, first the default one. What stays is of the second alone.
// `is_other`: one that needs far less, so that a plan for it is worth having.
void run_in_two_streams(bool is_first, bool is_other, std::vector<void*>& weights) {
  void* const side = reinterpret_cast<void*>(uintptr_t{0x5150});
  std::vector<void*> none;
  if (!is_other) run_step(false, none);
  for (int i = 0; i < 400; ++i) {
    void* const sent = headroom_malloc(70'000 + i * 1024, 0, is_other ? nullptr : side);
    void* const kept = headroom_malloc(40'000 + i * 512, 0, side);
    if (is_first && i < 10) weights.push_back(headroom_malloc(kMiB + i * 4096, 0, side));
    headroom_free(sent, 0, 0, nullptr);
    headroom_free(kept, 0, 0, side);
  }
  headroom_iteration(0);
}

// In a process of its own: `steps` iterations, longer ones from `longer_from` on, or until the
// report says `until`, which it must.
void two_streams_in_child(const std::string& path, int longer_from, int steps,
                          const std::string& until) {
  in_child([&] {
    set_up(512);
    headroom_configuration made = configuration();
    made.plan_path = made.plan_out = path.c_str();
    IN_CHILD(headroom_configure(&made) == 0);
    std::vector<void*> weights;
    bool is_said = false;
    for (int i = 0; i < steps && !is_said; ++i) {
      run_in_two_streams(i == 0, i >= longer_from, weights);
      // Ever slower: a planner that a sanitizer or other work holds up catches up with it.
      std::this_thread::sleep_for(std::chrono::milliseconds(2 + i / 10));
      is_said = report().find(until) != std::string::npos;
    }
    IN_CHILD(is_said);
    headroom_finish();
  });
}

// The log that a kept plan was replaced from does not begin with the process.
TEST(Runtime, APlanThatReplacesAKeptOneNamesStreamsByTheirFirstUse) {
  const std::string path = path_of_this_test();
  two_streams_in_child(path, 1'000, 1'000, "\"switches\": 1,");
  two_streams_in_child(path, 20, 1'000, "\"switches\": 2,");
  two_streams_in_child(path, 0, 40, "\"from_file\": true");
  std::remove(path.c_str());
}

void write_plan_of_other_work(const std::string& path) {
  memory::MemoryPlan other;
  other.alignment = 512;
  other.bytes = 512;
  other.streams = {{{0, 512}, 0, 0}};
  other.signatures.resize(1);
  other.signatures[0].slots = {{0, 1, 7, 7, 0, false}};
  std::ofstream(path, std::ios::binary) << *memory::plan_file(other);
}

// In a process of its own: the first iteration of a run that was given a plan.
void begin_with_plan(const std::string& path, int32_t mode, std::vector<void*>& weights) {
  set_up(256);
  headroom_configuration made = configuration();
  made.plan_path = path.c_str();
  made.mode = mode;
  IN_CHILD(headroom_configure(&made) == 0);
  run_step(true, weights);
}

// A kept plan of other work is followed first; that an optimizer's steps will come was said before
// there was a planner to be told.
TEST(Runtime, StepsAreExpectedOfThePlannerThatComesAfterAKeptPlan) {
  const std::string path = path_of_this_test();
  write_plan_of_other_work(path);
  in_child([&] {
    std::vector<void*> weights;
    begin_with_plan(path, HEADROOM_MODE_RUN, weights);
    headroom_expect_iterations();
    const std::string said = "no optimizer's step yet";
    bool is_said = false;
    for (int i = 0; i < 1000 && !is_said; ++i) {
      run_step(false, weights);  // a micro-batch
      is_said = report().find(said) != std::string::npos;
      IN_CHILD(statistics().is_planned == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    IN_CHILD(is_said);
    headroom_finish();
  });
  std::remove(path.c_str());
}

// One of other work is refused once it had its chance; who ends before that is told why none
// served.
TEST(Runtime, APlanOfOtherWorkIsToldOf) {
  const std::string path = path_of_this_test();
  write_plan_of_other_work(path);
  in_child([&] {
    std::vector<void*> weights;
    begin_with_plan(path, HEADROOM_MODE_SERVE, weights);
    IN_CHILD(report().find("has not met an iteration of its own yet, in 130 requests") !=
             std::string::npos);
    for (int i = 0; i < 40; ++i) run_step(false, weights);
    IN_CHILD(report().find("\"refused\": \"the plan is of other work\"") != std::string::npos);
    IN_CHILD(report().find("\"follows\": \"\"") != std::string::npos);
  });
  std::remove(path.c_str());
}

TEST(Runtime, APlanOfNothingIsRefused) {
  const std::string path = path_of_this_test();
  for (const bool has_stream : {false, true}) {
    memory::MemoryPlan nothing;
    nothing.alignment = 512;
    if (has_stream) nothing.streams = {{{0, 0}, 0, 0}};
    nothing.signatures.resize(1);
    std::ofstream(path, std::ios::binary) << *memory::plan_file(nothing);
    const Told told = steps_in_child(path, "", HEADROOM_MODE_SERVE, "the plan has no slots");
    EXPECT_EQ(told.planned, 0);
    EXPECT_GT(told.reserved_peak, 0);
    std::remove(path.c_str());
  }
}

}  // namespace
}  // namespace headroom
