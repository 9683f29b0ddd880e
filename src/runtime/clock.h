// The monotonic clock in nanoseconds, for what is recorded and reported.
#pragma once

#include <chrono>
#include <cstdint>

namespace headroom::runtime {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace headroom::runtime
