// Where memory comes from and goes to, through the C ABI over the fake driver: releases, refusals,
// what backs a block, limits, several devices.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
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

// Who asks the device itself then learns why; "nothing is free" would be taken for a figure.
TEST(Runtime, WhatIsFreeIsNotAnsweredWhereTheDriverDoesNotSay) {
  in_child([] {
    set_up(64);
    configure_default();
    IN_CHILD(headroom_malloc(2 * kMiB, 0, nullptr) != nullptr);
    int64_t free_bytes = 7;
    int64_t total_bytes = 7;
    headroom_fake_fail("cuMemGetInfo_v2", 0, 1, 4);
    IN_CHILD(headroom_memory_info(0, &free_bytes, &total_bytes) == -1);
    IN_CHILD(free_bytes == 7 && total_bytes == 64 * kMiB);
    IN_CHILD(std::string(headroom_error()).find("cuMemGetInfo") != std::string::npos);
    IN_CHILD(headroom_memory_info(0, &free_bytes, &total_bytes) == 0);
    IN_CHILD(total_bytes == 64 * kMiB && free_bytes < total_bytes);
  });
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

// Where peers are needed, a mapping that they cannot have is none; that is told once.
TEST(Runtime, PeersThatAreNeededAndHaveNoAccessLeaveNoPages) {
  in_child([] {
    set_up(64);
    headroom_configuration made = configuration();
    made.world_size = 1;
    IN_CHILD(headroom_configure(&made) == 0);
    headroom_fake_fail("cuMemSetAccess", 0, 1, 999);
    IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(report().find("\"backing_reason\": \"cuMemSetAccess for peers") != std::string::npos);
    IN_CHILD(report().find("\"peers_reason\": \"\"") != std::string::npos);
    IN_CHILD(headroom_fake_used_bytes(0) == statistics().reserved_bytes.current);
  });
}

// A handle that could not be mapped goes back before whole pieces are taken.
TEST(Runtime, ADeviceThatMapsNoPageKeepsNone) {
  in_child([] {
    set_up(64);
    configure_default();
    headroom_fake_fail("cuMemMap", 0, 1'000, 801);
    IN_CHILD(headroom_malloc(4 * kMiB, 0, nullptr) != nullptr);
    IN_CHILD(report().find("\"backing\": \"pieces\"") != std::string::npos);
    IN_CHILD(headroom_fake_calls("cuMemRelease") == headroom_fake_calls("cuMemCreate"));
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
        // What was opened first has pages all the same.
        const bool is_warned = report().find("used first may have pages") != std::string::npos;
        IN_CHILD(is_warned == (is_told && one.world_size > 1));
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

}  // namespace
}  // namespace headroom
