// Effort: how much a search may still do, counted in placements rather than in seconds, so that the
// same input gives the same plan on every machine; and a question to somebody who has a clock, for
// searches that were given a deadline.
//
// A placement is about a microsecond. Not synchronised: each task has its own.
#pragma once

#include <cstdint>
#include <functional>

namespace headroom::memory {

struct Effort {
  int64_t placements = 0;                  // left
  std::function<bool()> is_out_of_time{};  // may be empty; any thread may ask it

  // Takes `count` placements. False when there are no more, or no time.
  bool spend(int64_t count) {
    placements -= count;
    unasked_ += count;
    if (placements < 0) return false;
    if (unasked_ < kPlacementsPerLook) return true;
    unasked_ = 0;
    return !is_out_of_time || !is_out_of_time();
  }

 private:
  static constexpr int64_t kPlacementsPerLook = 2000;
  int64_t unasked_ = 0;
};

}  // namespace headroom::memory
