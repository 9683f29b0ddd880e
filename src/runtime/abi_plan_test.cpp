// Plans that are made while a program runs, through the C ABI over the fake driver: a steady
// iteration, the switch, and another look.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_child.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/in_child.h"
#include "runtime/fake/made_up_steps.h"

namespace headroom {
namespace {

using namespace runtime::fake;

TEST(Runtime, ASteadyIterationAsksNothingOfTheDriver) {
  in_child([] {
    set_up(256);
    configure_default();
    std::vector<void*> weights;
    IN_CHILD(run_until_planned(weights));
    for (int i = 0; i < 8; ++i) run_step(false, weights);
    const std::vector<const char*> calls = {"cuMemCreate",      "cuMemMap",     "cuMemUnmap",
                                            "cuCtxSynchronize", "cuMemRelease", "cuEventRecord"};
    std::vector<int64_t> before;
    for (const char* const call : calls) before.push_back(headroom_fake_calls(call));
    const headroom_statistics s = statistics();
    for (int i = 0; i < 3; ++i) run_step(false, weights);
    for (size_t i = 0; i < calls.size(); ++i) {
      IN_CHILD(headroom_fake_calls(calls[i]) == before[i]);
    }
    IN_CHILD(statistics().planned_requests - s.planned_requests == 3 * 120);
    IN_CHILD(report().find("\"serves\": true") != std::string::npos);
  });
}

// At the moment of the switch another program has what the arena would take.
TEST(Runtime, APlanWithoutMemoryIsFollowedByAnother) {
  in_child([] {
    set_up(256);
    configure_default();
    headroom_fake_on_call(
        "cuCtxSynchronize", [](void*) { headroom_fake_fail("cuMemMap", 0, 1, 2); }, nullptr);
    std::vector<void*> weights;
    IN_CHILD(run_unplanned_until("no memory for the plan's", weights));
    IN_CHILD(run_until_planned(weights));
  });
}

// Two steps, and as much again of another kind: what a plan of the steps alone has no slots for.
void run_long_iteration(const std::function<void()>& midway = [] {}) {
  std::vector<void*> none;
  run_step(false, none);
  run_step(false, none);
  std::vector<void*> live;
  for (int i = 0; i < 240; ++i) {
    live.push_back(headroom_malloc(kMiB + i * 1024, 0, nullptr));
    if (live.size() > 12) {
      headroom_free(live.front(), 0, 0, nullptr);
      live.erase(live.begin());
    }
    if (i == 120) midway();
  }
  for (void* const block : live) headroom_free(block, 0, 0, nullptr);
  headroom_iteration(0);
}

// What repeats early is only a part of what repeats later: the marks of the optimizer say so. The
// second log begins while blocks of the first are alive, and those are released into it.
TEST(Runtime, APlanOfLessThanAnIterationIsReplaced) {
  in_child([] {
    set_up(256);
    configure_default();
    std::vector<void*> weights;
    IN_CHILD(run_until_planned(weights));
    headroom_free(headroom_malloc(64 * kMiB, 0, nullptr), 0, 0, nullptr);
    const int64_t highest = statistics().allocated_bytes.peak;
    std::vector<void*> old;
    for (int i = 0; i < 10; ++i) old.push_back(headroom_malloc(50'000 + i * 512, 0, nullptr));
    const std::string one = "\"switches\": 1,";
    const std::string two = "\"switches\": 2,";
    IN_CHILD(report().find(one) != std::string::npos);
    for (int i = 0; i < 400 && report().find(two) == std::string::npos; ++i) {
      run_long_iteration();
      if (i > 6 && !old.empty()) {
        headroom_free(old.back(), 0, 0, nullptr);
        old.pop_back();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    IN_CHILD(report().find(two) != std::string::npos);
    // Nobody has reset the peaks: those of the first plan's time are the run's.
    IN_CHILD(statistics().allocated_bytes.peak == highest);
    IN_CHILD(statistics().active_bytes.peak >= highest);
    IN_CHILD(report().find("\"peak_allocated_bytes\": " + std::to_string(highest)) !=
             std::string::npos);
    for (int i = 0; i < 3; ++i) run_long_iteration();
    const headroom_statistics before = statistics();
    for (int i = 0; i < 3; ++i) run_long_iteration();
    IN_CHILD(statistics().planned_requests - before.planned_requests > 3 * (2 * 120 + 230));
  });
}

// Another rank's collective may run until this host goes on: waiting for the device is given up
// then.
TEST(Runtime, ASwitchIsGivenUpWhereTheDeviceIsAtWorkForLong) {
  in_child([] {
    set_up(256);
    configure_default();
    static std::atomic<bool> is_stuck = true;
    headroom_fake_on_call(
        "cuCtxSynchronize",
        [](void*) {
          while (is_stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        nullptr);
    std::vector<void*> weights;
    IN_CHILD(run_unplanned_until("the device could not be waited for: still at work", weights));
    is_stuck = false;
    IN_CHILD(run_until_planned(weights));
  });
}

// A phase in which best fit needs no more than a plan says nothing of what comes.
void run_step_that_best_fit_serves_well(bool is_even) {
  std::vector<void*> kept;
  for (int i = 0; i < 24; ++i) {
    void* const passing = is_even ? nullptr : headroom_malloc((2 + 2 * (i / 2)) * kMiB, 0, nullptr);
    kept.push_back(headroom_malloc(is_even ? 2 * kMiB : kMiB, 0, nullptr));
    headroom_free(passing, 0, 0, nullptr);
  }
  for (; !kept.empty(); kept.pop_back()) headroom_free(kept.back(), 0, 0, nullptr);
  headroom_iteration(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(Runtime, WorkThatComesToNeedAPlanIsLookedAtAgain) {
  in_child([] {
    set_up(1024, 0, false);
    headroom_configuration made = configuration();
    made.flags = 0;
    IN_CHILD(headroom_configure(&made) == 0);
    const auto step = run_step_that_best_fit_serves_well;
    const std::string said = "\"refused\": \"best fit needs no more than a plan would";
    for (int i = 0; i < 10'000 && report().find(said) == std::string::npos; ++i) step(true);
    IN_CHILD(report().find(said) != std::string::npos);
    for (int i = 0; i < 10'000 && statistics().is_planned == 0; ++i) step(false);
    IN_CHILD(statistics().is_planned == 1);
  });
}

// What the plan has no place for needs as much memory again beside it; best fit would have reused.
TEST(Runtime, APlanThatNeedsMoreThanBestFitDidIsGivenUp) {
  in_child([] {
    set_up(1024, 0, false);
    headroom_configuration made = configuration();
    made.flags = 0;
    IN_CHILD(headroom_configure(&made) == 0);
    const auto step = [] {
      std::vector<void*> kept;
      for (int i = 0; i < 24; ++i) {
        void* const passing = headroom_malloc(3 * kMiB, 0, nullptr);
        kept.push_back(headroom_malloc(2 * kMiB + 4096 * i, 0, nullptr));  // no two alike
        headroom_free(passing, 0, 0, nullptr);
      }
      for (; !kept.empty(); kept.pop_back()) headroom_free(kept.back(), 0, 0, nullptr);
      headroom_iteration(0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    for (int i = 0; i < 10'000 && statistics().is_planned == 0; ++i) step();
    IN_CHILD(statistics().is_planned == 1);
    const std::string said = "needed more than best fit did";
    void* const other = reinterpret_cast<void*>(uintptr_t{0x7000});
    headroom_fake_stream(other, 0);
    std::vector<void*> blocks;  // no more than was alive at once before
    for (int i = 0; i < 6; ++i) blocks.push_back(headroom_malloc(8 * kMiB, 0, other));
    IN_CHILD(report().find(said) != std::string::npos);
    IN_CHILD(statistics().reserved_bytes.current <= 64 * kMiB);  // the plan's 51 MiB went back
    for (void* const block : blocks) headroom_free(block, 0, 0, other);
    IN_CHILD(headroom_fake_violations() == 0);
  });
}

// A plan serves, a new one follows the requests and has not found its place; now memory runs out.
TEST(Runtime, PlanningGoesOnAfterMemoryRanOut) {
  in_child([] {
    set_up(256);
    configure_default();
    std::vector<void*> weights;
    IN_CHILD(run_until_planned(weights));
    const auto predicted = [] {
      const std::string all = report();
      const size_t at = all.find("\"predicted_planned_bytes\"");
      return all.substr(at, all.find(',', at) - at);
    };
    const std::string of_first = predicted();
    bool has_run_out = false;
    for (int i = 0; i < 4000 && !has_run_out; ++i) {
      run_long_iteration([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the planner's turn
        headroom_free(headroom_malloc(512, 0, nullptr), 0, 0, nullptr);
        if (predicted() == of_first) return;  // no new one yet
        IN_CHILD(statistics().is_planned == 1);
        IN_CHILD(headroom_malloc(kGiB, 0, nullptr) == nullptr);
        IN_CHILD(statistics().is_planned == 0);
        const int64_t left = 256 * kMiB - headroom_fake_used_bytes(0);
        headroom_fake_occupy(0, left);
        // Little is free below the live blocks; what comes next comes to the boundary.
        headroom_free(headroom_malloc(512, 0, nullptr), 0, 0, nullptr);
        headroom_fake_occupy(0, -left);
        has_run_out = true;
      });
    }
    IN_CHILD(has_run_out);
    for (int i = 0; i < 4000 && statistics().is_planned == 0; ++i) {
      run_long_iteration();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    IN_CHILD(statistics().is_planned == 1);
  });
}

// The sum of the numbers after `name` in what comes before `state`, or of all.
int64_t sum_of(const std::string& json, const std::string& name, const std::string& state) {
  int64_t sum = 0;
  for (size_t at = json.find(name); at != std::string::npos; at = json.find(name, at + 1)) {
    const size_t end = json.find('}', at);
    const size_t found = json.find(state, at);
    if (found < end) sum += std::stoll(json.substr(at + name.size()));
  }
  return sum;
}

TEST(Runtime, ASnapshotShowsThePlansArena) {
  in_child([] {
    set_up(256);
    configure_default();
    std::vector<void*> weights;
    IN_CHILD(run_until_planned(weights));
    run_step(false, weights);
    auto* const other = reinterpret_cast<void*>(uintptr_t{64});
    void* const planned = headroom_malloc(100'000, 0, nullptr);
    void* const waits = headroom_malloc(300'000, 0, nullptr);
    headroom_fake_work(other, reinterpret_cast<uint64_t>(waits), 8);
    headroom_record_stream(waits, other);
    headroom_free(waits, 0, 0, nullptr);
    IN_CHILD(statistics().planned_requests > 100);
    std::string json(static_cast<size_t>(headroom_snapshot(0, nullptr, 0)) + 1, '\0');
    headroom_snapshot(0, json.data(), static_cast<int64_t>(json.size()));
    const headroom_statistics s = statistics();
    IN_CHILD(sum_of(json, "\"size\": ", "active_allocated") == s.allocated_bytes.current);
    IN_CHILD(sum_of(json, "\"size\": ", "active_pending_free") ==
             s.active_bytes.current - s.allocated_bytes.current);
    IN_CHILD(sum_of(json, "\"total_size\": ", "") == s.reserved_bytes.current);
    IN_CHILD(json.find(std::to_string(reinterpret_cast<uint64_t>(planned))) != std::string::npos);
  });
}

}  // namespace
}  // namespace headroom
