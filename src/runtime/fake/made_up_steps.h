// A program for tests of the C ABI: iterations of a made-up step, and its threads.
#pragma once

#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_child.h"
#include "runtime/fake/abi_words.h"

namespace headroom::runtime::fake {

// One iteration of a made-up step.
inline void run_step(bool is_first, std::vector<void*>& weights) {
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

inline size_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// A thread that was joined may be listed for a moment yet. ThreadSanitizer has threads of its own.
inline bool is_alone() {
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
inline bool run_until_planned(std::vector<void*>& weights) {
  for (int i = 0; i < 10'000 && statistics().is_planned == 0; ++i) {
    run_step(weights.empty(), weights);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return statistics().is_planned != 0;
}

// Steps until the report has these words; false where a plan served before, or none said them.
inline bool run_unplanned_until(const std::string& said, std::vector<void*>& weights) {
  for (int i = 0; i < 10'000 && report().find(said) == std::string::npos; ++i) {
    run_step(weights.empty(), weights);
    if (statistics().is_planned != 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return report().find(said) != std::string::npos;
}

}  // namespace headroom::runtime::fake
