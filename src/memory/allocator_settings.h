// AllocatorSettings: what PYTORCH_CUDA_ALLOC_CONF (or PYTORCH_ALLOC_CONF) says, and the two size
// rules that depend on it: what a request is rounded to, and how large a segment it would open.
//
// Plain values and pure functions; safe from any thread. The rules and their figures are those of
// PyTorch's c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.{h,cpp}.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace headroom::memory {

inline constexpr int64_t kMinBlockSize = 512;         // every block is a multiple of this
inline constexpr int64_t kSmallSize = kMiB;           // the largest request of the small pool
inline constexpr int64_t kSmallBuffer = 2 * kMiB;     // a segment of the small pool
inline constexpr int64_t kLargeBuffer = 20 * kMiB;    // a segment for requests in (1, 10) MiB
inline constexpr int64_t kMinLargeAlloc = 10 * kMiB;  // from here a segment is made to measure,
inline constexpr int64_t kRoundLarge = 2 * kMiB;      // in steps of this
// Requests beyond this are out of memory on any machine; the bound keeps sums inside int64.
inline constexpr int64_t kMaxRequest = int64_t{1} << 56;
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct AllocatorSettings {
  int64_t max_split_size_bytes = kUnlimited;  // larger blocks are never split
  int64_t max_non_split_rounding_bytes = kLargeBuffer;
  int64_t large_segment_size_bytes = kLargeBuffer;  // torch 2.10 and later; 20 MiB before
  double garbage_collection_threshold = 0;          // 0 is off
  bool expandable_segments = false;
  // Divisions between powers of two, for sizes of 1 MiB, 2 MiB, ... 32 GiB and more; 0 and 1 are
  // off.
  std::array<int64_t, 16> roundup_power2_divisions{};
  // The share of the device that this process may take (torch's set_per_process_memory_fraction or
  // per_process_memory_fraction); garbage collection works only with one.
  std::optional<double> memory_fraction;

  bool operator==(const AllocatorSettings&) const = default;
};

// Reads "max_split_size_mb:128,expandable_segments:True". Keys that only concern pinned memory or
// locking are accepted and have no effect here; unknown keys, values out of range and other
// back ends than "native" are errors that name the place.
[[nodiscard]] Result<AllocatorSettings> parse_allocator_config(std::string_view text);

// The block size for a request. REQUIRES: 0 <= requested <= kMaxRequest. 1 -> 512; 513 -> 1024.
[[nodiscard]] int64_t rounded_size(const AllocatorSettings& settings, int64_t requested);

// The size of the segment that a block of `size` opens when no cached block fits.
// 512 -> 2 MiB; 1.5 MiB -> 20 MiB; 11 MiB -> 12 MiB.
[[nodiscard]] int64_t segment_size_for(const AllocatorSettings& settings, int64_t size);

}  // namespace headroom::memory
