// Other streams, graph captures and their pools, through the C ABI over the fake driver.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "base/units.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_child.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/in_child.h"

namespace headroom {
namespace {

using namespace runtime::fake;

TEST(Runtime, ABlockThatAnotherStreamUsesWaitsForIt) {
  in_child([] {
    set_up(64, 1000);
    configure_default();
    auto* const other = reinterpret_cast<void*>(uintptr_t{64});
    void* const block = headroom_malloc(4 * kMiB, 0, nullptr);
    headroom_fake_work(other, reinterpret_cast<uint64_t>(block), 4 * kMiB);
    headroom_record_stream(block, other);
    headroom_free(block, 0, 0, nullptr);
    IN_CHILD(statistics().active.current == 1 && statistics().allocation.current == 0);
    while (headroom_fake_is_touched(nullptr, reinterpret_cast<uint64_t>(block), 1) != 0) {
      void* const next = headroom_malloc(4 * kMiB, 0, nullptr);
      IN_CHILD(next != block ||
               headroom_fake_is_touched(nullptr, reinterpret_cast<uint64_t>(block), 1) == 0);
      headroom_free(next, 0, 0, nullptr);
    }
    headroom_fake_advance(2000);
    headroom_free(headroom_malloc(1, 0, nullptr), 0, 0, nullptr);
    IN_CHILD(statistics().active.current == 0);
  });
}

// An event of one device cannot be recorded on another's stream, and waiting for one waits for no
// other. Default streams are null on every device, and PyTorch says no device.
TEST(Runtime, ABlockThatAnotherDeviceUsesWaitsForIt) {
  auto* const own = reinterpret_cast<void*>(uintptr_t{32});
  auto* const side = reinterpret_cast<void*>(uintptr_t{64});
  for (const bool is_default : {false, true}) {
    for (void* const stream : {own, static_cast<void*>(nullptr)}) {
      in_child([=] {
        set_up(64, 1000);
        configure_default();
        headroom_fake_stream(own, 0);
        headroom_fake_stream(side, 1);
        IN_CHILD(headroom_malloc(kMiB, 1, nullptr) != nullptr);  // PyTorch is there, too
        void* const block = headroom_malloc(4 * kMiB, 0, stream);
        const auto address = reinterpret_cast<uint64_t>(block);
        void* const other = is_default ? headroom_fake_default_stream(1) : side;
        for (int i = 0; i < 10; ++i) headroom_fake_work(other, address, 4 * kMiB);
        headroom_record_stream(block, is_default ? nullptr : side);
        headroom_free(block, 0, 0, stream);
        int polls = 0;
        for (; headroom_fake_is_touched(stream, address, 1) != 0; ++polls) {
          void* const next = headroom_malloc(4 * kMiB, 0, stream);
          IN_CHILD(next != block || headroom_fake_is_touched(stream, address, 1) == 0);
          headroom_free(next, 0, 0, stream);
        }
        IN_CHILD(polls > 1 && headroom_fake_calls("cuCtxSynchronize") == 0);
        headroom_fake_advance(2000);
        for (int i = 0; i < 3; ++i) headroom_free(headroom_malloc(1, 0, own), 0, 0, own);
        IN_CHILD(statistics().active.current == 0);
      });
    }
  }
}

TEST(Runtime, ABlocksOwnStreamIsNoOther) {
  in_child([] {
    set_up(64);
    configure_default();
    void* const block = headroom_malloc(kMiB, 0, nullptr);
    headroom_record_stream(block, nullptr);
    headroom_free(block, 0, 0, nullptr);
    IN_CHILD(headroom_fake_calls("cuEventRecord") == 0);
  });
}

// A capture begins in one thread while another waits for the device, or asks it of an event: it
// begins when that is over.
TEST(Runtime, NothingThatACaptureForbidsIsUnderWayWhenOneBegins) {
  struct Capturer {
    std::thread thread;
    std::atomic<bool> has_begun = false;
    bool is_pool = false;
  };
  for (const char* const call : {"cuCtxSynchronize", "cuMemUnmap", "cuEventQuery"}) {
    for (const bool is_pool : {false, true}) {
      in_child([=] {
        set_up(64, 10);
        configure_default();
        auto* const other = reinterpret_cast<void*>(uintptr_t{64});
        void* const used = headroom_malloc(kMiB, 0, nullptr);
        headroom_record_stream(used, other);
        headroom_free(headroom_malloc(4 * kMiB, 0, nullptr), 0, 0, nullptr);
        headroom_free(used, 0, 0, nullptr);
        Capturer capturer;
        capturer.is_pool = is_pool;
        headroom_fake_on_call(
            call,
            [](void* context) {
              auto& one = *static_cast<Capturer*>(context);
              one.thread = std::thread([&one] {
                if (one.is_pool) {
                  headroom_pool_begin(0, 1, 2, nullptr, nullptr);
                } else {
                  headroom_capture_begin(0);
                }
                headroom_fake_capture(1);
                one.has_begun = true;
              });
              for (int i = 0; i < 100 && !one.has_begun; ++i) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              }
            },
            &capturer);
        headroom_free(headroom_malloc(kMiB, 0, nullptr), 0, 0, nullptr);  // asks
        headroom_reset();                                                 // waits and unmaps
        capturer.thread.join();
        IN_CHILD(capturer.has_begun);
        headroom_reset();
      });
    }
  }
}

TEST(Runtime, CapturedAddressesStayMappedUntilTheirPoolIsReleased) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_pool_begin(0, 1, 2, nullptr, nullptr);
    headroom_fake_capture(1);
    void* const captured = headroom_malloc(4 * kMiB, 0, nullptr);
    auto* const other = reinterpret_cast<void*>(uintptr_t{64});
    void* const shared = headroom_malloc(kMiB, 0, nullptr);
    headroom_record_stream(shared, other);
    headroom_free(shared, 0, 0, nullptr);  // no event now
    headroom_free(captured, 0, 0, nullptr);
    headroom_reset();  // nor any unmapping
    headroom_fake_capture(-1);
    headroom_pool_end(0, 1, 2);
    headroom_reset();
    std::memset(captured, 1, 4 * kMiB);  // the graph replays
    void* const next = headroom_malloc(4 * kMiB, 0, nullptr);
    IN_CHILD(next != captured);
    headroom_pool_release(0, 1, 2);
    headroom_free(next, 0, 0, nullptr);
    headroom_reset();
    IN_CHILD(statistics().reserved_bytes.current == 0);
  });
}

TEST(Runtime, APoolThatGraphsShareIsReleasedByTheLastOfThem) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_pool_begin(0, 1, 2, nullptr, nullptr);
    void* const captured = headroom_malloc(4 * kMiB, 0, nullptr);
    headroom_free(captured, 0, 0, nullptr);
    headroom_pool_end(0, 1, 2);
    headroom_pool_begin(0, 1, 2, nullptr, nullptr);  // the second graph
    headroom_pool_end(0, 1, 2);
    headroom_pool_release(0, 1, 2);  // the first one is gone
    headroom_reset();
    std::memset(captured, 1, 4 * kMiB);  // the second one replays
    headroom_pool_release(0, 1, 2);
    headroom_reset();
    IN_CHILD(statistics().reserved_bytes.current == 0);
  });
}

TEST(Runtime, AReleasedPoolGivesItsMemoryBack) {
  for (const bool is_virtual : {true, false}) {
    in_child([=] {
      set_up(64, 0, is_virtual);
      configure_default();
      auto* const stream = reinterpret_cast<void*>(uintptr_t{64});
      void* const outside = headroom_malloc(3 * kMiB, 0, nullptr);
      const int64_t before = headroom_fake_used_bytes(0);
      for (uint64_t graph = 1; graph <= 20; ++graph) {
        headroom_pool_begin(0, graph, 2, nullptr, nullptr);
        headroom_fake_capture(1);
        void* const captured = headroom_malloc(4 * kMiB, 0, nullptr);
        void* const small = headroom_malloc(100, 0, stream);
        headroom_free(captured, 0, 0, nullptr);
        headroom_fake_capture(-1);
        headroom_pool_end(0, graph, 2);
        const bool is_kept = graph % 2 == 0;  // a tensor of the graph outlives it
        if (!is_kept) headroom_free(small, 0, 0, stream);
        headroom_fake_work(stream, reinterpret_cast<uint64_t>(captured), 4 * kMiB);
        headroom_pool_release(0, graph, 2);
        if (is_kept) {
          IN_CHILD(headroom_fake_used_bytes(0) > before);
          headroom_free(small, 0, 0, stream);
          headroom_free(headroom_malloc(1, 0, nullptr), 0, 0, nullptr);  // somebody asks again
          headroom_free(headroom_malloc(3 * kMiB, 0, nullptr), 0, 0, nullptr);
          headroom_reset();
        }
        IN_CHILD(headroom_fake_used_bytes(0) == before);
        IN_CHILD(statistics().reserved_bytes.current == before);
      }
      headroom_free(outside, 0, 0, nullptr);
    });
  }
}

TEST(Runtime, APoolReleasedDuringACaptureGoesAfterIt) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_pool_begin(0, 1, 2, nullptr, nullptr);
    headroom_free(headroom_malloc(4 * kMiB, 0, nullptr), 0, 0, nullptr);
    headroom_pool_end(0, 1, 2);
    headroom_pool_begin(0, 3, 4, nullptr, nullptr);
    headroom_fake_capture(1);
    headroom_pool_release(0, 1, 2);
    IN_CHILD(headroom_fake_used_bytes(0) == 4 * kMiB);
    headroom_fake_capture(-1);
    headroom_pool_end(0, 3, 4);
    headroom_pool_release(0, 3, 4);
    IN_CHILD(headroom_fake_used_bytes(0) == 0);
    headroom_pool_release(0, 3, 4);  // once too often
  });
}

// Errors 900 and 907 say that somebody captures, not that work is done.
TEST(Runtime, ACaptureThatNobodyToldOfEndsNoWait) {
  in_child([] {
    set_up(64, 1000);
    configure_default();
    auto* const other = reinterpret_cast<void*>(uintptr_t{64});
    const auto poll = [] { headroom_free(headroom_malloc(1, 0, nullptr), 0, 0, nullptr); };
    void* const block = headroom_malloc(4 * kMiB, 0, nullptr);
    headroom_fake_work(other, reinterpret_cast<uint64_t>(block), 4 * kMiB);
    headroom_record_stream(block, other);
    headroom_fake_fail("cuEventRecord", 0, 1, 900);
    headroom_fake_fail("cuCtxSynchronize", 0, 1, 900);
    headroom_free(block, 0, 0, nullptr);
    IN_CHILD(statistics().active.current == 1);
    for (const int error : {900, 907}) {
      headroom_fake_fail("cuEventQuery", 0, 1, error);
      poll();
      IN_CHILD(statistics().active.current == 1);
    }
    headroom_fake_advance(3000);
    poll();
    headroom_fake_advance(3000);
    poll();
    IN_CHILD(statistics().active.current == 0);
  });
}

}  // namespace
}  // namespace headroom
