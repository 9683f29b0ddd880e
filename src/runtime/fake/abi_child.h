// For tests of the C ABI over the fake driver. What is for ever in a process (the runtime, its
// configuration) is tested in processes of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "base/units.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/in_child.h"

namespace headroom::runtime::fake {

inline void set_up(int64_t memory_mib, int64_t delay = 0, bool is_virtual = true) {
  const headroom_fake_setting setting{2, memory_mib << 20,   2 * kMiB, delay, 1,
                                      1, is_virtual ? 1 : 0, 1};
  headroom_fake_set_up(&setting);
}

inline headroom_configuration configuration() {
  headroom_configuration made{};
  made.struct_bytes = sizeof made;
  made.driver_path = FAKE_CUDA_PATH;
  made.flags = HEADROOM_FLAG_ALWAYS_PLAN;
  return made;
}

// Runs `what` in a process of its own, which must end with 0 and break no rule of the driver.
inline void in_child(const std::function<void()>& what) { EXPECT_EQ(status_of_child(what), 0); }

inline void configure_default() {
  const headroom_configuration made = configuration();
  IN_CHILD(headroom_configure(&made) == 0);
}

// Of this test and this process alone.
inline std::string path_of_this_test() {
  return testing::TempDir() + "headroom_" +
         testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
         std::to_string(getpid());
}

}  // namespace headroom::runtime::fake
