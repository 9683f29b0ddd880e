// What a program puts in order between its streams, told through the C ABI: memory that one of them
// gave back is another's while the device is still far behind.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_child.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/in_child.h"
#include "runtime/fake/two_stream_steps.h"

namespace headroom {
namespace {

using namespace runtime::fake;

constexpr int64_t kFarBehind = 1'000'000;  // ticks: no event of ours ever happens in time

struct Program {
  bool tells = true;        // the allocator, of what is waited for
  bool first_waits = true;  // the side waits for the main stream before it begins
  bool last_waits = true;   // the main stream waits for the side behind it

  // `who` waits for `other`.
  void wait(void* who, void* other) const {
    const uint64_t event = tells ? headroom_event_recorded(0, other) : 0;
    headroom_fake_wait(who, headroom_fake_record(other));
    headroom_event_waited(0, who, event);
  }
  // Gradients are reduced on the side stream, and given back where that has nothing more to do:
  // behind the last event that anybody waits for.
  void reduce() const {
    if (first_waits) wait(kSide, nullptr);
    std::vector<void*> gathered;
    for (int i = 0; i < 6; ++i) gathered.push_back(take(4 * kMiB, kSide));
    if (last_waits) wait(nullptr, kSide);
    for (void* const block : gathered) give(block, 4 * kMiB, kSide);
  }
  void run_step() const {
    run_step_beside([this] { reduce(); });
  }
  [[nodiscard]] bool run_until_it_serves() const {
    return runtime::fake::run_until_it_serves([this] { run_step(); });
  }
};

TEST(RuntimeOrder, MemoryOfAnotherStreamIsUsedBehindWhatTheProgramWaitsFor) {
  in_child([] {
    set_up(512, kFarBehind);
    configure_default();
    const Program program;
    IN_CHILD(program.run_until_it_serves());
    for (int i = 0; i < 10; ++i) program.run_step();
    const int64_t guests_before = guests();
    const int64_t queried = headroom_fake_calls("cuEventQuery");
    const int64_t waited = headroom_fake_calls("cuStreamWaitEvent");
    for (int i = 0; i < 5; ++i) program.run_step();
    IN_CHILD(guests() >= guests_before + 5);
    IN_CHILD(headroom_fake_calls("cuEventQuery") == queried);
    // The main stream is made to wait once a step, for what comes behind the side's last event.
    IN_CHILD(headroom_fake_calls("cuStreamWaitEvent") == waited + 5);
    IN_CHILD(headroom_fake_violations() == 0);
  });
}

TEST(RuntimeOrder, WhatNobodyToldIsNotKnown) {
  in_child([] {
    set_up(512, kFarBehind);
    configure_default();
    const Program program{.tells = false};
    IN_CHILD(program.run_until_it_serves());
    for (int i = 0; i < 10; ++i) program.run_step();
    IN_CHILD(guests() == 0);
    IN_CHILD(headroom_fake_calls("cuStreamWaitEvent") == 0);
    IN_CHILD(headroom_fake_violations() == 0);
  });
}

// A plan was made of streams that wait for one another; then they do not any more.
TEST(RuntimeOrder, GuestsGoElsewhereWhereAStreamDoesNotWaitAnyMore) {
  for (const bool is_first : {true, false}) {
    in_child([is_first] {
      set_up(512, kFarBehind);
      configure_default();
      IN_CHILD(Program{}.run_until_it_serves());
      for (int i = 0; i < 10; ++i) Program{}.run_step();
      IN_CHILD(guests() > 0);
      const Program other{.first_waits = !is_first, .last_waits = is_first};
      other.run_step();
      const int64_t guests_before = guests();
      const int64_t elsewhere_before = statistics().fallback_requests;
      for (int i = 0; i < 5; ++i) other.run_step();
      // Either the guests do not come any more, or the lender does not.
      if (!is_first) IN_CHILD(guests() == guests_before);
      IN_CHILD(statistics().fallback_requests >= elsewhere_before + 5);
      IN_CHILD(headroom_fake_violations() == 0);
      for (int i = 0; i < 40; ++i) Program{}.run_step();
      IN_CHILD(headroom_fake_violations() == 0);
    });
  }
}

// Nobody waits but as the program has it: what is released behind the last event of its stream is
// not in order before the next one.
TEST(RuntimeOrder, JoinsCanBeForbidden) {
  in_child([] {
    set_up(512, kFarBehind);
    configure_default();
    headroom_forbid_joins();
    const Program program;
    IN_CHILD(program.run_until_it_serves());
    for (int i = 0; i < 10; ++i) program.run_step();
    IN_CHILD(guests() == 0);
    IN_CHILD(headroom_fake_calls("cuStreamWaitEvent") == 0);
    IN_CHILD(headroom_fake_violations() == 0);
  });
}

// A driver that refuses: guests go elsewhere, and nothing is wrong.
TEST(RuntimeOrder, JoinsThatTheDriverRefusesAreNone) {
  for (const char* const call : {"cuEventRecord", "cuStreamWaitEvent"}) {
    in_child([call] {
      set_up(512, kFarBehind);
      configure_default();
      const Program program;
      IN_CHILD(program.run_until_it_serves());
      for (int i = 0; i < 10; ++i) program.run_step();
      headroom_fake_fail(call, 0, 1'000'000, 999);
      program.run_step();
      const int64_t guests_before = guests();
      for (int i = 0; i < 5; ++i) program.run_step();
      IN_CHILD(guests() == guests_before);
      headroom_fake_fail(call, 0, 0, 0);
      for (int i = 0; i < 20; ++i) program.run_step();
      IN_CHILD(guests() > guests_before);
      IN_CHILD(headroom_fake_violations() == 0);
    });
  }
}

// Within a capture an event is an edge of the graph, and orders nothing else.
TEST(RuntimeOrder, EventsOfACaptureAreNone) {
  in_child([] {
    set_up(512, kFarBehind);
    configure_default();
    headroom_free(take(kMiB, nullptr), kMiB, 0, nullptr);
    IN_CHILD(headroom_event_recorded(0, kSide) != 0);
    headroom_capture_begin(0);
    IN_CHILD(headroom_event_recorded(0, kSide) == 0);
    headroom_capture_end(0);
    headroom_fake_capture(1);  // that nobody told of
    IN_CHILD(headroom_event_recorded(0, kSide) == 0);
    headroom_fake_capture(-1);
    IN_CHILD(headroom_event_recorded(0, kSide) != 0);
    IN_CHILD(headroom_event_recorded(1, kSide) == 0);  // a device that was not used
    headroom_event_waited(1, nullptr, 1);
    headroom_event_waited(0, nullptr, 12'345);
    const uint64_t event = headroom_event_recorded(0, kSide);
    headroom_capture_begin(0);
    headroom_event_waited(0, nullptr, event);
    headroom_capture_end(0);
    IN_CHILD(headroom_fake_violations() == 0);
  });
}

}  // namespace
}  // namespace headroom
