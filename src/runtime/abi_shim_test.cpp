// What the C ABI has for the shim (python/headroom/run/shim), over the fake driver; each test in a
// process of its own, as the runtime is for ever. Through PyTorch's class: tests/shim.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/units.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_child.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/in_child.h"

namespace headroom {
namespace {

using namespace runtime::fake;

// Two devices of 64 MiB.
void with_devices(const std::function<void()>& what, bool is_virtual = true, int64_t delay = 0) {
  in_child([&] {
    set_up(64, delay, is_virtual);
    configure_default();
    what();
  });
}

TEST(AbiShim, AReleaseTellsWhoseBlockItWasAndHowLarge) {
  with_devices([] {
    int local = 0;
    IN_CHILD(headroom_release(&local, 0) == 0 && headroom_release(nullptr, 0) == 0);
    void* const block = headroom_malloc(1000, 1, nullptr);
    IN_CHILD(headroom_device_of(block) == 1 && headroom_device_of(&local) == -1);
    IN_CHILD(headroom_release(block, 0) == 1024);  // the device is a hint
    IN_CHILD(headroom_release(block, 1) == 0 && headroom_device_of(block) == -1);
    IN_CHILD(statistics(1).allocation.current == 0);
    void* const kept = headroom_malloc(1000, 0, nullptr);
    IN_CHILD(status_of_child([&] { IN_CHILD(headroom_release(kept, 0) == -1); }) == 0);
  });
}

TEST(AbiShim, OthersAreAskedBeforeARequestIsRefused) {
  for (const bool is_virtual : {true, false}) {
    with_devices(
        [] {
          static int64_t asked = 0;
          headroom_fake_occupy(0, 40 * kMiB);
          headroom_on_memory_wanted(
              [](int64_t bytes, int device, void* context) {
                ++asked;
                IN_CHILD(bytes == 30 * kMiB && device == 0 && context == &asked);
                if (asked > 1) return 0;
                headroom_fake_occupy(0, -40 * kMiB);
                return 1;
              },
              &asked);
          IN_CHILD(headroom_malloc(20 * kMiB, 0, nullptr) != nullptr && asked == 0);
          IN_CHILD(headroom_malloc(30 * kMiB, 0, nullptr) != nullptr && asked == 1);
          IN_CHILD(statistics().num_ooms == 0);
          IN_CHILD(headroom_malloc(30 * kMiB, 0, nullptr) == nullptr && asked == 2);
          IN_CHILD(statistics().num_ooms == 1 && statistics().num_alloc_retries == 2);
        },
        is_virtual);
  }
}

TEST(AbiShim, NothingThatACaptureForbidsIsDoneWhileOneIsElsewhere) {
  with_devices(
      [] {
        int other = 0;
        void* const used = headroom_malloc(kMiB, 0, nullptr);
        headroom_capture_begin(0);
        headroom_capture_begin(0);
        headroom_fake_capture(1);
        headroom_record_stream(used, &other);
        headroom_free(used, 0, 0, nullptr);
        for (int i = 0; i < 4; ++i) headroom_free(headroom_malloc(kMiB, 0, nullptr), 0, 0, nullptr);
        headroom_reset();
        headroom_capture_end(0);
        headroom_reset();  // one of the two is still there
        IN_CHILD(headroom_fake_violations() == 0 && statistics().reserved_bytes.current > 0);
        headroom_fake_capture(-1);
        headroom_capture_end(0);
        headroom_reset();
        IN_CHILD(statistics().reserved_bytes.current == 0);
      },
      true, 20);
}

TEST(AbiShim, AnEndWithoutABeginningEndsNoOtherCapture) {
  with_devices([] {
    headroom_free(headroom_malloc(kMiB, 0, nullptr), 0, 0, nullptr);
    headroom_capture_end(0);
    headroom_capture_begin(0);
    headroom_fake_capture(1);
    headroom_reset();
    IN_CHILD(headroom_fake_violations() == 0 && statistics().reserved_bytes.current > 0);
    headroom_fake_capture(-1);
    headroom_capture_end(0);
    headroom_pool_begin(
        0, 1, 2, [](void*, void*) { return 0; }, nullptr);
    headroom_capture_end(0);  // nor that of a pool
    headroom_fake_capture(1);
    headroom_reset();
    IN_CHILD(headroom_fake_violations() == 0 && statistics().reserved_bytes.current > 0);
    headroom_fake_capture(-1);
    headroom_pool_end(0, 1, 2);
    headroom_reset();
    IN_CHILD(statistics().reserved_bytes.current == 0);
  });
}

TEST(AbiShim, SegmentsAreVisitedAsTheSnapshotHasThem) {
  with_devices([] {
    IN_CHILD(headroom_largest_free_block(0) == 0);
    void* const kept = headroom_malloc(3 * kMiB, 0, nullptr);
    headroom_free(headroom_malloc(6 * kMiB, 0, nullptr), 0, 0, nullptr);
    struct Seen {
      int64_t bytes = 0;
      int64_t live = 0;
      int64_t largest_free = 0;
      bool has_kept = false;
      void* kept;
    } seen{0, 0, 0, false, kept};
    headroom_visit_segments(
        0,
        [](const headroom_segment* segment, void* context) {
          auto& sum = *static_cast<Seen*>(context);
          sum.bytes += segment->bytes;
          int64_t at = segment->address;
          for (int64_t i = 0; i < segment->block_count; ++i) {
            const headroom_block& block = segment->blocks[i];
            IN_CHILD(block.address == at);
            at += block.bytes;
            const bool is_live = block.state == HEADROOM_BLOCK_LIVE;
            if (is_live) sum.live += block.requested_bytes;
            if (!is_live) sum.largest_free = std::max(sum.largest_free, block.bytes);
            sum.has_kept |= is_live && block.address == reinterpret_cast<intptr_t>(sum.kept);
          }
          IN_CHILD(at == segment->address + segment->bytes && segment->device == 0);
        },
        &seen);
    IN_CHILD(seen.has_kept && seen.live == 3 * kMiB);
    IN_CHILD(seen.bytes == statistics().reserved_bytes.current);
    IN_CHILD(headroom_largest_free_block(0) == seen.largest_free && seen.largest_free >= 6 * kMiB);
  });
}

TEST(AbiShim, ABlockInItsPlannedSlotHasABaseToo) {
  for (const bool is_virtual : {true, false}) {
    with_devices(
        [] {
          for (int pass = 0; pass < 10'000 && statistics().is_planned == 0; ++pass) {
            std::vector<void*> blocks;
            for (const int64_t bytes : {3 * kMiB, kMiB / 2, 5 * kMiB}) {
              blocks.push_back(headroom_malloc(bytes, 0, nullptr));
            }
            for (void* const block : blocks) headroom_free(block, 0, 0, nullptr);
            std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the planner's turn
          }
          IN_CHILD(statistics().is_planned == 1);
          auto* const block = static_cast<char*>(headroom_malloc(3 * kMiB, 0, nullptr));
          IN_CHILD(statistics().planned_requests > 0);
          size_t bytes = 0;
          auto* const base = static_cast<char*>(headroom_get_base_allocation(block, &bytes));
          IN_CHILD(base != nullptr && base <= block && block < base + bytes);
        },
        is_virtual);
  }
}

}  // namespace
}  // namespace headroom
