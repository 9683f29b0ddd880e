// The least hardware that a step fits on: of every known GPU, as few in one machine as do it.
//
// Least is what offers the least memory together, then what has fewer devices. A device is tried
// with 1, 2, 4, 8 and so on, in each way that rank_methods() knows; it fits where the high end of
// the interval does. What more of them would do for the time is fit --gpus' to say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "fit/question.h"
#include "fit/search/methods.h"
#include "fit/search/search_progress.h"

namespace headroom::fit {

inline constexpr int64_t kMostOfAMachine = 8;
// Of more, what offers most is named alone: who asks for the least wants none of it, and a fastest
// way has to be found for each.
inline constexpr size_t kMostHardware = 16;

// One device and as many as it takes.
struct Hardware {
  DeviceMemory device;  // its count, too
  MethodRow row;        // the fastest way that fits
  [[nodiscard]] Bytes offered() const { return Bytes(device.offered.count * device.count); }
};

// What is asked is of the least.
struct SmallestAnswer : Asked {
  int64_t most = 1;                    // of a device that were tried
  std::vector<Hardware> rows;          // the least first, kMostHardware of them
  std::vector<std::string> larger;     // devices that do it and offer more, the least first
  std::vector<std::string> too_small;  // devices of which so many do not do it
  std::optional<RunCost> cost;         // of the least, where a price was given
};

// Whatever device the question names, unless that is `only`. The Error is about the question
// itself, on every device. REQUIRES: no division of its own; 1 <= most <= kMostGpus. Some seconds
// for a 7B model; both cores.
Result<SmallestAnswer> find_smallest(const FitQuestion& question, int64_t most,
                                     const std::optional<std::string>& only,
                                     const SearchProgress& progress = {});

}  // namespace headroom::fit
