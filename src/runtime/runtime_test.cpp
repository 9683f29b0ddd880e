// The library as PyTorch sees it: the C ABI over the fake driver. What is for ever in a process
// (the runtime, its configuration) is tested in processes of their own.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "memory/plan/plan_file.h"
#include "memory/recording/reader.h"
#include "runtime/abi.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/in_child.h"

namespace headroom {
namespace {

void set_up(int64_t memory_mib, int64_t delay = 0, bool is_virtual = true) {
  const headroom_fake_setting setting{2, memory_mib << 20,   2 * kMiB, delay, 1,
                                      1, is_virtual ? 1 : 0, 1};
  headroom_fake_set_up(&setting);
}

headroom_configuration configuration() {
  headroom_configuration made{};
  made.struct_bytes = sizeof made;
  made.driver_path = FAKE_CUDA_PATH;
  made.flags = HEADROOM_FLAG_ALWAYS_PLAN;
  return made;
}

headroom_statistics statistics(int device = 0) {
  headroom_statistics s{};
  s.struct_bytes = sizeof s;
  headroom_get_statistics(device, &s);
  return s;
}

std::string report() {
  std::string text(static_cast<size_t>(headroom_report(nullptr, 0)) + 1, '\0');
  headroom_report(text.data(), static_cast<int64_t>(text.size()));
  return text;
}

// Runs `what` in a process of its own, which must end with 0 and break no rule of the driver.
void in_child(const std::function<void()>& what) { EXPECT_EQ(status_of_child(what), 0); }

void configure_default() {
  const headroom_configuration made = configuration();
  IN_CHILD(headroom_configure(&made) == 0);
}

TEST(Runtime, SizeNullIsNullAndWhatIsNotOursIsIgnored) {
  in_child([] {
    set_up(64);
    configure_default();
    IN_CHILD(headroom_malloc(0, 0, nullptr) == nullptr);
    int local = 0;
    void* const block = headroom_malloc(1, 0, nullptr);
    IN_CHILD(block != nullptr);
    headroom_free(&local, 4, 0, nullptr);
    headroom_free(nullptr, 0, 0, nullptr);
    headroom_free(block, 1, 1, nullptr);  // the device is not believed
    headroom_free(block, 1, 0, nullptr);  // twice
    IN_CHILD(statistics().allocation.current == 0);
    IN_CHILD(report().find("\"unknown_frees\": 2") != std::string::npos);
  });
}

TEST(Runtime, NothingIsCalledBeforeTheFirstAllocation) {
  in_child([] {
    set_up(64);
    configure_default();
    IN_CHILD(headroom_probe_driver() == 0);
    headroom_init(2);
    headroom_reset();
    headroom_set_memory_fraction(0.5, 0);
    IN_CHILD(headroom_fake_calls("cuInit") == 0);
    IN_CHILD(headroom_malloc(1, 0, nullptr) != nullptr);
    IN_CHILD(headroom_fake_calls("cuInit") == 1);
    IN_CHILD(headroom_malloc(40 * kMiB, 0, nullptr) == nullptr);  // half of 64 MiB
    const headroom_configuration late = configuration();
    IN_CHILD(headroom_configure(&late) == -1);
  });
}

TEST(Runtime, EverythingIsGivenBackBeforeOutOfMemory) {
  for (const bool is_virtual : {true, false}) {
    in_child([=] {
      set_up(64, 0, is_virtual);
      configure_default();
      std::vector<void*> blocks;
      for (int i = 0; i < 28; ++i) blocks.push_back(headroom_malloc(2 * kMiB, 0, nullptr));
      for (void* const block : blocks) {
        IN_CHILD(block != nullptr);
        headroom_free(block, 0, 0, nullptr);
      }
      // Another stream, another size: nothing of it is cached for this.
      auto* const stream = reinterpret_cast<void*>(uintptr_t{64});
      void* const large = headroom_malloc(60 * kMiB, 0, stream);
      IN_CHILD(large != nullptr);
      IN_CHILD(headroom_malloc(8 * kMiB, 0, stream) == nullptr);
      const std::string why = headroom_error();
      IN_CHILD(
          why.starts_with("CUDA out of memory. Tried to allocate 8.00 MiB. GPU 0 has a total"));
      headroom_free(large, 0, 0, stream);
      IN_CHILD(headroom_malloc(8 * kMiB, 0, stream) != nullptr);
      IN_CHILD(statistics().num_ooms == 1);
    });
  }
}

// Else NCCL, cuBLAS or another process fails after a script has caught the error. Few pages are
// taken one by one until the driver refuses; of many it is asked first.
TEST(Runtime, WhoIsRefusedHoldsOnlyWhatIsAlive) {
  static int64_t used_when_asked = 0;
  for (const int64_t others_mib : {0, 50}) {
    for (const bool captures : {false, true}) {
      in_child([=] {
        set_up(64);
        configure_default();
        headroom_on_memory_wanted(
            [](int64_t, int, void*) {
              used_when_asked = headroom_fake_used_bytes(0);
              return 0;
            },
            nullptr);
        headroom_fake_occupy(0, others_mib * kMiB);
        IN_CHILD(headroom_malloc(10 * kMiB, 0, nullptr) != nullptr);
        if (captures) {
          headroom_capture_begin(0);
          headroom_fake_capture(1);
        }
        const int64_t used = headroom_fake_used_bytes(0);
        IN_CHILD(used == (others_mib + 10) * kMiB);
        for (const int64_t mib : {16, 60, 17, 63}) {
          if (others_mib + 10 + mib <= 64) continue;
          IN_CHILD(headroom_malloc(mib * kMiB, 0, nullptr) == nullptr);
          IN_CHILD(used_when_asked == used && headroom_fake_used_bytes(0) == used);
          IN_CHILD(statistics().reserved_bytes.current == 10 * kMiB);
          const bool says_all = std::strstr(headroom_error(), "gave back every page") != nullptr;
          IN_CHILD(says_all != captures);
        }
      });
    }
  }
}

// A request near the size of the device is refused by what the driver says, not by mapping tens of
// thousands of pages, time and again.
TEST(Runtime, ARefusalCostsFewCallsHoweverLargeTheDevice) {
  in_child([] {
    const headroom_fake_setting setting{1, 80 * kGiB, 2 * kMiB, 0, 0, 0, 1, 1};
    headroom_fake_set_up(&setting);
    configure_default();
    IN_CHILD(headroom_malloc(10 * kMiB, 0, nullptr) != nullptr);
    const int64_t maps = headroom_fake_calls("cuMemMap");
    const int64_t creates = headroom_fake_calls("cuMemCreate");
    for (int i = 0; i < 10; ++i) {
      IN_CHILD(headroom_malloc(80 * kGiB - 9 * kMiB, 0, nullptr) == nullptr);
    }
    IN_CHILD(headroom_fake_calls("cuMemMap") == maps);
    IN_CHILD(headroom_fake_calls("cuMemCreate") <= creates + 4 * 10);
    IN_CHILD(headroom_fake_used_bytes(0) == 10 * kMiB);
    void* const all = headroom_malloc(80 * kGiB - 10 * kMiB, 0, nullptr);
    IN_CHILD(all != nullptr);
    headroom_free(all, 0, 0, nullptr);
  });
}

// What the driver calls free is less than what it would give: it has caches of its own.
TEST(Runtime, WhatTheDriverCallsFreeIsNoLastWord) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_fake_understate_free(0, 40 * kMiB);
    IN_CHILD(headroom_malloc(60 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(headroom_fake_used_bytes(0) == 60 * kMiB);
  });
}

TEST(Runtime, WhereNothingCanBeMappedIsAvoided) {
  in_child([] {
    set_up(64);
    configure_default();
    auto* const first = static_cast<char*>(headroom_malloc(4 * kMiB, 0, nullptr));
    IN_CHILD(first != nullptr);
    headroom_fake_fail_at(reinterpret_cast<uint64_t>(first) + 4 * kMiB, 2 * kMiB, 1);
    IN_CHILD(headroom_malloc(8 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(headroom_fake_used_bytes(0) == 12 * kMiB);
    const int64_t maps = headroom_fake_calls("cuMemMap");
    const int64_t reserved = headroom_fake_calls("cuMemAddressReserve");
    for (int i = 0; i < 5; ++i) IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(headroom_fake_calls("cuMemMap") == maps + 10);  // not tried again
    IN_CHILD(headroom_fake_calls("cuMemAddressReserve") == reserved);
    IN_CHILD(statistics().num_ooms == 0);
  });
}

// What fails wherever it is tried costs one more segment of address space, however often.
TEST(Runtime, WhatFailsEverywhereIsNoMemory) {
  in_child([] {
    set_up(64);
    configure_default();
    IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
    headroom_fake_fail("cuMemMap", 0, 1'000'000, 1);
    for (int i = 0; i < 200; ++i) IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) == nullptr);
    IN_CHILD(headroom_fake_used_bytes(0) == 4 * kMiB);
    headroom_fake_fail("cuMemMap", 0, 0, 0);
    IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(headroom_fake_calls("cuMemAddressReserve") == 1);
  });
}

TEST(Runtime, ARefusalNamesNoErrorOfAnotherRequest) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_fake_fail("cuMemAddressReserve", 0, 1, 2);  // and less is asked for
    IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(headroom_malloc(80 * kMiB, 0, nullptr) == nullptr);
    IN_CHILD(std::strstr(headroom_error(), "cuMem") == nullptr);
    headroom_fake_fail("cuMemMap", 0, 1'000, 999);
    IN_CHILD(headroom_malloc(16 * kMiB, 0, nullptr) == nullptr);
    IN_CHILD(std::strstr(headroom_error(), "cuMemMap") != nullptr);
  });
}

// A context takes memory, which another program may give back: a second request may be served.
TEST(Runtime, ADeviceThatDidNotOpenIsAskedAgain) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_fake_fail("cuDevicePrimaryCtxRetain", 0, 1, 2);
    IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) == nullptr);
    IN_CHILD(std::strstr(headroom_error(), "cuDevicePrimaryCtxRetain") != nullptr);
    IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
  });
}

TEST(Runtime, PeersThatHaveNoAccessAreToldOf) {
  in_child([] {
    set_up(64);
    configure_default();
    IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(report().find("\"peers_reason\": \"\"") != std::string::npos);
    headroom_fake_fail("cuMemSetAccess", 0, 1, 999);
    IN_CHILD(headroom_malloc(16 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(report().find("\"peers_reason\": \"cuMemSetAccess") != std::string::npos);
  });
}

// Behind PyTorch's C interface, copies between devices without peer access know cuMemAlloc's memory
// alone.
TEST(Runtime, SeveralDevicesThatDoNotReachEachOtherHaveNoPages) {
  const auto backing_of = [](int device) {
    const std::string text = report();
    const size_t at = text.find("\"device\": " + std::to_string(device));
    return text.substr(text.find("\"backing\": ", at) + 11, 7);
  };
  struct Case {
    int peers;
    int world_size;
    int64_t flags;
    std::array<const char*, 2> backing;
  };
  for (const Case& one : {Case{0, 1, 0, {"pieces", "pieces"}},
                          // A rank of many uses one device; a second one is told.
                          Case{0, 2, 0, {"pages", "pieces"}},
                          Case{0, 1, HEADROOM_FLAG_COPIES_NAME_DEVICES, {"pages", "pages"}},
                          Case{1, 1, 0, {"pages", "pages"}}}) {
    in_child([&] {
      const headroom_fake_setting setting{2, 64 * kMiB, 2 * kMiB, 0, 1, 1, 1, one.peers};
      headroom_fake_set_up(&setting);
      headroom_configuration made = configuration();
      made.world_size = one.world_size;
      made.flags = one.flags;
      IN_CHILD(headroom_configure(&made) == 0);
      for (int device = 0; device < 2; ++device) {
        IN_CHILD(headroom_malloc(4 * kMiB, device, nullptr) != nullptr);
        const std::string word = one.backing[static_cast<size_t>(device)];
        IN_CHILD(backing_of(device).starts_with("\"" + word));
        const bool is_told = report().find("does not reach its memory") != std::string::npos;
        IN_CHILD(is_told == (word == "pieces"));
      }
      IN_CHILD(one.peers == 0 || headroom_fake_last_access() == 2);
    });
  }
}

TEST(Runtime, HandlesCanBeSharedWhereTheDeviceAndTheContainerAllowIt) {
  for (const bool is_forbidden : {false, true}) {
    in_child([&] {
      set_up(64);
      configure_default();
      headroom_fake_shareable_handles(1);
      if (is_forbidden) headroom_fake_fail("cuMemCreate", 0, 1, 800);
      IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
      IN_CHILD((headroom_fake_last_handle_is_shareable() != 0) == !is_forbidden);
      IN_CHILD(report().find("\"backing\": \"pages\"") != std::string::npos);
    });
  }
}

// MPS lets a process have less than the driver calls free.
TEST(Runtime, ALimitThatOnlyTheDriverKnowsIsHonoured) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_fake_occupy(0, 24 * kMiB);
    headroom_fake_understate_free(0, -24 * kMiB);
    IN_CHILD(headroom_malloc(20 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(headroom_malloc(21 * kMiB, 0, nullptr) == nullptr);
    IN_CHILD(std::strstr(headroom_error(), "CUDA out of memory") == headroom_error());
    IN_CHILD(headroom_fake_used_bytes(0) == (20 + 24) * kMiB);  // what was taken went back
    IN_CHILD(headroom_malloc(20 * kMiB, 0, nullptr) != nullptr);
  });
}

// The allocator's own thread-locals are gone when the last of a program's is: memory can be asked
// for, and refused, then, too.
TEST(Runtime, ADyingThreadMayBeRefused) {
  struct Late {
    bool is_armed = false;
    ~Late() {
      if (!is_armed) return;
      IN_CHILD(headroom_malloc(80 * kMiB, 0, nullptr) == nullptr);
      IN_CHILD(std::strstr(headroom_error(), "Tried to allocate 80.00 MiB") != nullptr);
    }
  };
  in_child([] {
    set_up(64);
    configure_default();
    std::thread([] {
      static thread_local Late late;
      late.is_armed = true;  // made before what the next line makes, so it goes after it
      IN_CHILD(headroom_malloc(70 * kMiB, 0, nullptr) == nullptr);
    }).join();
  });
}

TEST(Runtime, AMemoryFractionIsWhatWasSetBeforeTheFirstAllocationToo) {
  in_child([] {
    set_up(64);
    configure_default();
    IN_CHILD(headroom_get_memory_fraction(1) == 1 && headroom_get_memory_fraction(-1) == 1);
    headroom_set_memory_fraction(0.5, 1);
    headroom_set_memory_fraction(2, 1);  // no fraction
    IN_CHILD(headroom_get_memory_fraction(1) == 0.5 && headroom_get_memory_fraction(0) == 1);
    IN_CHILD(headroom_malloc(40 * kMiB, 1, nullptr) == nullptr);
    IN_CHILD(headroom_get_memory_fraction(1) == 0.5);
  });
}

// A script that resets its peaks every step has the report of the whole run all the same.
TEST(Runtime, PeaksOfTheReportOutliveAReset) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_free(headroom_malloc(40 * kMiB, 0, nullptr), 0, 0, nullptr);
    headroom_reset();
    headroom_reset_peak_statistics(0);
    headroom_free(headroom_malloc(2 * kMiB, 0, nullptr), 0, 0, nullptr);
    IN_CHILD(statistics().allocated_bytes.peak == 2 * kMiB);
    for (const std::string name : {"peak_allocated_bytes", "peak_reserved_bytes"}) {
      IN_CHILD(report().find('"' + name + "\": " + std::to_string(40 * kMiB)) != std::string::npos);
    }
  });
}

TEST(Runtime, AResetOfSumsWhileABlockWaitsMakesNoneNegative) {
  in_child([] {
    set_up(64, 1000);
    configure_default();
    auto* const other = reinterpret_cast<void*>(uintptr_t{64});
    void* const block = headroom_malloc(kMiB, 0, nullptr);
    for (int i = 0; i < 10; ++i) {
      headroom_fake_work(other, reinterpret_cast<uint64_t>(block), kMiB);
    }
    headroom_record_stream(block, other);
    headroom_free(block, 0, 0, nullptr);
    IN_CHILD(statistics().active.freed == 0 && statistics().active.allocated == 1);
    headroom_reset_accumulated_statistics(0);
    IN_CHILD(statistics().active.freed == 0 && statistics().active_bytes.freed == 0);
    headroom_fake_advance(3000);
    headroom_malloc(512, 0, nullptr);
    IN_CHILD(statistics().active.freed == 1 && statistics().active_bytes.freed == kMiB);
    IN_CHILD(statistics().active.allocated == 1 && statistics().active.current == 1);
  });
}

TEST(Runtime, TheHandlerMayThrowThroughTheAllocator) {
  in_child([] {
    set_up(16);
    configure_default();
    headroom_on_out_of_memory(
        [](const char* message, int, void*) { throw std::runtime_error(message); }, nullptr);
    bool was_thrown = false;
    try {
      headroom_malloc(kGiB, 0, nullptr);
    } catch (const std::runtime_error& error) {
      was_thrown = std::strncmp(error.what(), "CUDA out of memory.", 19) == 0;
    }
    IN_CHILD(was_thrown);
    IN_CHILD(headroom_malloc(kMiB, 0, nullptr) != nullptr);  // no lock was left behind
  });
}

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

TEST(Runtime, AForkedChildGetsNothingAndHurtsNobody) {
  in_child([] {
    set_up(64);
    configure_default();
    void* const block = headroom_malloc(kMiB, 0, nullptr);
    const int status = status_of_child([&] {
      IN_CHILD(headroom_malloc(kMiB, 0, nullptr) == nullptr);
      headroom_free(block, 0, 0, nullptr);
      headroom_reset();
      headroom_finish();
    });
    IN_CHILD(status == 0);
    headroom_free(block, 0, 0, nullptr);
    IN_CHILD(statistics().allocation.current == 0);
  });
}

// One iteration of a made-up step.
void run_step(bool is_first, std::vector<void*>& weights) {
  if (is_first) {
    for (int i = 0; i < 10; ++i) weights.push_back(headroom_malloc(kMiB + i * 4096, 0, nullptr));
  }
  std::vector<void*> live;
  for (int layer = 0; layer < 40; ++layer) {
    void* const temporary = headroom_malloc(100'000 + layer * 512, 0, nullptr);
    live.push_back(headroom_malloc(300'000 + layer * 1024, 0, nullptr));
    std::memset(live.back(), layer, 64);
    headroom_free(temporary, 0, 0, nullptr);
  }
  while (!live.empty()) {
    void* const gradient =
        headroom_malloc(200'000 + static_cast<ssize_t>(live.size()) * 2048, 0, nullptr);
    headroom_free(live.back(), 0, 0, nullptr);
    live.pop_back();
    headroom_free(gradient, 0, 0, nullptr);
  }
}

[[maybe_unused]] size_t threads() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

// A thread that was joined may be listed for a moment yet. ThreadSanitizer has threads of its own.
bool is_alone() {
#if !defined(__SANITIZE_THREAD__)
  for (int i = 0; i < 1000 && threads() > 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return threads() == 1;
#else
  return true;
#endif
}

// The planner's thread needs its turn, which a busy machine may not give it for long.
bool run_until_planned(std::vector<void*>& weights) {
  for (int i = 0; i < 10'000 && statistics().is_planned == 0; ++i) {
    run_step(i == 0, weights);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return statistics().is_planned != 0;
}

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

// A program may set the locale of its user; C's own printing follows it, and JSON does not.
TEST(Runtime, TheReportIsJsonWhereNumbersHaveCommas) {
  const std::string folder = testing::TempDir() + "headroom_locale_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const std::string make =
      "localedef -i de_DE -f UTF-8 " + folder + "/de_DE.UTF-8 > /dev/null 2>&1";
  const bool is_made = std::system(make.c_str()) == 0;
  if (is_made) {
    in_child([&] {
      setenv("LOCPATH", folder.c_str(), 1);
      IN_CHILD(std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr);
      set_up(16);
      configure_default();
      IN_CHILD(headroom_malloc(80 * kMiB, 0, nullptr) == nullptr);
      IN_CHILD(std::strstr(headroom_error(), "Tried to allocate 80.00 MiB.") != nullptr);
      for (const char* const name : {"planning_seconds", "switch_ms", "switch_wait_ms"}) {
        const std::string key = '"' + std::string(name) + "\": 0";
        IN_CHILD(report().find(key) != std::string::npos);
        IN_CHILD(report().find(key + ",0") == std::string::npos);
      }
    });
  }
  std::filesystem::remove_all(folder);
  if (!is_made) GTEST_SKIP() << "localedef makes no locale here";
}

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
  const std::string path = testing::TempDir() + "headroom_runtime_" + std::to_string(getpid());
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
  const std::string nowhere =
      testing::TempDir() + "headroom_no_folder_" + std::to_string(getpid()) + "/plan";
  const Told told = steps_in_child("", nowhere, HEADROOM_MODE_RUN,
                                   "\"not_kept\": \"" + nowhere + ": cannot write the plan: ");
  EXPECT_GT(told.planned, 0);
}

// At the moment of the switch another program has what the arena would take.
TEST(Runtime, APlanWithoutMemoryIsFollowedByAnother) {
  in_child([] {
    set_up(256);
    configure_default();
    headroom_fake_on_call(
        "cuCtxSynchronize", [](void*) { headroom_fake_fail("cuMemMap", 0, 1, 2); }, nullptr);
    std::vector<void*> weights;
    const std::string said = "no memory for the plan's";
    run_step(true, weights);
    for (int i = 0; i < 10'000 && report().find(said) == std::string::npos; ++i) {
      run_step(false, weights);
      IN_CHILD(statistics().is_planned == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    IN_CHILD(report().find(said) != std::string::npos);
    for (int i = 0; i < 10'000 && statistics().is_planned == 0; ++i) {
      run_step(false, weights);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    IN_CHILD(statistics().is_planned == 1);
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
    const std::string said = "the device could not be waited for: still at work";
    run_step(true, weights);
    for (int i = 0; i < 10'000 && report().find(said) == std::string::npos; ++i) {
      run_step(false, weights);
      IN_CHILD(statistics().is_planned == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    IN_CHILD(report().find(said) != std::string::npos);
    is_stuck = false;
    IN_CHILD(run_until_planned(weights));
  });
}

// A phase in which best fit needs no more than a plan says nothing of what comes.
TEST(Runtime, WorkThatComesToNeedAPlanIsLookedAtAgain) {
  in_child([] {
    set_up(1024, 0, false);
    headroom_configuration made = configuration();
    made.flags = 0;
    IN_CHILD(headroom_configure(&made) == 0);
    const auto step = [](bool is_even) {
      std::vector<void*> kept;
      for (int i = 0; i < 24; ++i) {
        void* const passing =
            is_even ? nullptr : headroom_malloc((2 + 2 * (i / 2)) * kMiB, 0, nullptr);
        kept.push_back(headroom_malloc(is_even ? 2 * kMiB : kMiB, 0, nullptr));
        headroom_free(passing, 0, 0, nullptr);
      }
      for (; !kept.empty(); kept.pop_back()) headroom_free(kept.back(), 0, 0, nullptr);
      headroom_iteration(0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    const std::string said = "\"refused\": \"best fit needs no more than a plan would";
    for (int i = 0; i < 10'000 && report().find(said) == std::string::npos; ++i) step(true);
    IN_CHILD(report().find(said) != std::string::npos);
    for (int i = 0; i < 10'000 && statistics().is_planned == 0; ++i) step(false);
    IN_CHILD(statistics().is_planned == 1);
  });
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
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      is_said = report().find(until) != std::string::npos;
    }
    IN_CHILD(is_said);
    headroom_finish();
  });
}

// The log that a kept plan was replaced from does not begin with the process.
TEST(Runtime, APlanThatReplacesAKeptOneNamesStreamsByTheirFirstUse) {
  const std::string path = testing::TempDir() + "headroom_streams_" + std::to_string(getpid());
  two_streams_in_child(path, 10'000, 10'000, "\"switches\": 1,");
  two_streams_in_child(path, 20, 10'000, "\"switches\": 2,");
  two_streams_in_child(path, 0, 40, "\"from_file\": true");
  std::remove(path.c_str());
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

// A kept plan of other work is followed first; that an optimizer's steps will come was said before
// there was a planner to be told.
TEST(Runtime, StepsAreExpectedOfThePlannerThatComesAfterAKeptPlan) {
  const std::string path = testing::TempDir() + "headroom_runtime_" + std::to_string(getpid());
  memory::MemoryPlan other;
  other.alignment = 512;
  other.bytes = 512;
  other.streams = {{{0, 512}, 0, 0}};
  other.signatures.resize(1);
  other.signatures[0].slots = {{0, 1, 7, 7, 0, false}};
  std::ofstream(path, std::ios::binary) << *memory::plan_file(other);
  in_child([&] {
    set_up(256);
    headroom_configuration made = configuration();
    made.plan_path = path.c_str();
    IN_CHILD(headroom_configure(&made) == 0);
    std::vector<void*> weights;
    run_step(true, weights);
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

TEST(Runtime, APlanOfNothingIsRefused) {
  const std::string path = testing::TempDir() + "headroom_runtime_" + std::to_string(getpid());
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

// Nobody may take half a recording for a whole one.
TEST(Runtime, ARecordingThatIsNotWholeIsToldOf) {
  const std::string path = testing::TempDir() + "headroom_runtime_" + std::to_string(getpid());
  for (const std::string& file : {path, path + ".none/recording"}) {
    in_child([&] {
      set_up(64);
      headroom_configuration made = configuration();
      made.mode = HEADROOM_MODE_RECORD;
      made.record_path = file.c_str();
      IN_CHILD(headroom_configure(&made) == 0);
      IN_CHILD(headroom_malloc(512, 0, nullptr) != nullptr);
      const std::string none = "\"recording_dropped_events\": 0,";
      IN_CHILD(report().find(none) != std::string::npos);
      const rlimit most{kMiB, kMiB};  // as a full disk
      IN_CHILD(std::signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &most) == 0);
      for (int i = 0; i < 40'000; ++i) {
        headroom_free(headroom_malloc(512, 0, nullptr), 0, 0, nullptr);
      }
      IN_CHILD((report().find(none) == std::string::npos) == (file == path));
      IN_CHILD((report().find("\"recording_reason\": \"\"") != std::string::npos) ==
               (file == path));
      IN_CHILD(report().find("\"refused\": \"\"") != std::string::npos);  // no plan was
    });
  }
  std::remove(path.c_str());
}

TEST(Runtime, ARecordingIsReadableThoughItsProcessWasKilled) {
  const std::string path = testing::TempDir() + "headroom_runtime_" + std::to_string(getpid());
  in_child([&] {
    set_up(64);
    headroom_configuration made = configuration();
    made.mode = HEADROOM_MODE_RECORD;
    made.record_path = path.c_str();
    IN_CHILD(headroom_configure(&made) == 0);
    void* const block = headroom_malloc(12'345, 0, nullptr);
    headroom_malloc(5 * kMiB, 0, nullptr);
    headroom_free(block, 0, 0, nullptr);
    // No headroom_finish(): as if it had been killed.
  });
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto recording = memory::parse_recording(bytes, path);
  ASSERT_TRUE(recording) << recording.error().to_string();
  size_t allocations = 0;
  size_t releases = 0;
  for (const auto& event : recording->events) {
    allocations += event.kind == memory::RecordKind::alloc ? 1 : 0;
    releases += event.kind == memory::RecordKind::free_completed ? 1 : 0;
  }
  EXPECT_EQ(allocations, 2U);
  EXPECT_EQ(releases, 1U);
  EXPECT_FALSE(recording->is_complete);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace headroom
