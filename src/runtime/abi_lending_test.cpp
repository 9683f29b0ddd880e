// A plan whose main stream borrows from another one, through the C ABI over the fake driver.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
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

// Something is fetched on a stream of its own, piece by piece.
void fetch() {
  std::deque<void*> fetched;
  for (int i = 0; i < 6; ++i) {
    fetched.push_back(take(4 * kMiB, kSide));
    headroom_fake_work(nullptr, reinterpret_cast<uint64_t>(fetched.back()), 4 * kMiB);
    headroom_record_stream(fetched.back(), nullptr);
    if (fetched.size() < 3) continue;
    give(fetched.front(), 4 * kMiB, kSide);
    fetched.pop_front();
  }
  for (; !fetched.empty(); fetched.pop_front()) give(fetched.front(), 4 * kMiB, kSide);
}
void run_step() { run_step_beside(fetch); }

// The device is a few ticks behind: guests come, and a steady iteration makes no call that takes
// long or waits.
TEST(RuntimeLending, MemoryOfAnotherStreamIsUsedBehindItsEvents) {
  in_child([] {
    set_up(512, 3);
    configure_default();
    IN_CHILD(run_until_it_serves(run_step));
    for (int i = 0; i < 10; ++i) run_step();
    const std::vector<const char*> calls = {"cuMemCreate",  "cuMemMap",
                                            "cuMemUnmap",   "cuCtxSynchronize",
                                            "cuMemRelease", "cuEventSynchronize"};
    std::vector<int64_t> before;
    for (const char* const call : calls) before.push_back(headroom_fake_calls(call));
    const int64_t guests_before = guests();
    for (int i = 0; i < 5; ++i) run_step();
    for (size_t i = 0; i < calls.size(); ++i) {
      IN_CHILD(headroom_fake_calls(calls[i]) == before[i]);
    }
    IN_CHILD(guests() >= guests_before + 5);
    IN_CHILD(headroom_fake_violations() == 0);
  });
}

// It was behind a little while the plan was made, and is far behind from then on: nobody waits for
// it, and what does not find its place lies elsewhere, once.
TEST(RuntimeLending, WhereTheDeviceFallsBehindGuestsGoElsewhere) {
  in_child([] {
    set_up(512, 3);
    configure_default();
    IN_CHILD(run_until_it_serves(run_step));
    for (int i = 0; i < 10; ++i) run_step();
    IN_CHILD(guests() > 0);
    headroom_fake_set_delay(100'000);
    for (int i = 0; i < 4; ++i) run_step();
    const int64_t synchronised = headroom_fake_calls("cuCtxSynchronize");
    const int64_t guests_before = guests();
    for (int i = 0; i < 3; ++i) run_step();
    IN_CHILD(headroom_fake_calls("cuCtxSynchronize") == synchronised);
    IN_CHILD(headroom_fake_calls("cuEventSynchronize") == 0);
    IN_CHILD(guests() == guests_before);
    // It keeps up again: what was pending is over, and the plan serves on.
    headroom_fake_set_delay(0);
    headroom_fake_advance(1'000'000);
    for (int i = 0; i < 3; ++i) run_step();
    for (int i = 0; i < 3; ++i) give(take(1, nullptr), 1, nullptr);
    IN_CHILD(statistics().active.current == 0 && statistics().is_planned != 0);
    IN_CHILD(headroom_fake_violations() == 0);
  });
}

}  // namespace
}  // namespace headroom
