// Recordings of a run, through the C ABI over the fake driver.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/units.h"
#include "memory/recording/reader.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_child.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/in_child.h"

namespace headroom {
namespace {

using namespace runtime::fake;

// Nobody may take half a recording for a whole one.
TEST(Runtime, ARecordingThatIsNotWholeIsToldOf) {
  const std::string path = path_of_this_test();
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
  const std::string path = path_of_this_test();
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
