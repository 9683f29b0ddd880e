// The library as PyTorch sees it, through its C ABI over the fake driver: sizes, handlers, dying
// threads, forks, peaks, the report.
#include <gtest/gtest.h>

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
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

// A program may set the locale of its user; C's own printing follows it, and JSON does not.
TEST(Runtime, TheReportIsJsonWhereNumbersHaveCommas) {
  const std::string folder = path_of_this_test();
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

}  // namespace
}  // namespace headroom
