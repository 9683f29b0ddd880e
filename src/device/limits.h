// Bounds on the figures of a device: far beyond any machine, close enough to catch a wrong unit.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace headroom::device {

inline constexpr int64_t kMinMemory = kKiB;
inline constexpr int64_t kMaxMemory = kGiB << 20;  // a pebibyte
inline constexpr double kMinBandwidth = 1e6;
inline constexpr double kMaxBandwidth = 1e17;
inline constexpr double kMinWatts = 1;
inline constexpr double kMaxWatts = 1e5;
inline constexpr double kMinFlops = 1e6;
inline constexpr double kMaxFlops = 1e20;
inline constexpr int64_t kMaxSmCount = 1'000'000;

}  // namespace headroom::device
