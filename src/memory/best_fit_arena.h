// BestFitArena: one growing range of addresses for each stream, best fit in it, neighbours joined
// when they are released: what a general allocator that cannot see the future gets out of a run.
//
// A yardstick between PyTorch's caching allocator, which cuts its memory into segments, and a plan,
// which knows all lifetimes (RMM's pool_memory_resource works much like this). It grows in pages of
// 2 MiB, the driver's granularity (cuMemGetAllocationGranularity), and gives back nothing but by
// empty_cache(). O(log n) a call, about 200 ns. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "memory/events.h"

namespace headroom::memory {

class BestFitArena {
 public:
  // REQUIRES: 0 < budget <= 2^60.
  explicit BestFitArena(int64_t budget);

  struct Block {
    uint64_t handle = 0;
    int64_t address = 0;
    int64_t size = 0;
  };
  // Nothing where the budget does not allow it. REQUIRES: 0 <= bytes <= kMaxRequest.
  std::optional<Block> allocate(int64_t bytes, uint32_t stream);
  // REQUIRES: `handle` is allocated.
  void free(uint64_t handle);
  // Gives back the whole pages at the end of each range in which nothing lies.
  void empty_cache();

  [[nodiscard]] int64_t allocated_bytes() const { return allocated_; }
  [[nodiscard]] int64_t requested_bytes() const { return requested_; }
  [[nodiscard]] int64_t reserved_bytes() const { return reserved_; }
  // Address and size of each stream's range.
  [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> held() const;

 private:
  struct Range {
    int64_t base = 0;
    int64_t end = 0;                                // pages up to here are held; offsets from base
    std::map<int64_t, int64_t> free;                // offset to size; no two touch
    std::set<std::pair<int64_t, int64_t>> by_size;  // the same as size, offset
  };
  struct Taken {
    int64_t offset = 0;
    int64_t size = 0;
    int64_t requested = 0;
    uint32_t stream = 0;
  };
  Range& range_of(uint32_t stream);
  bool grow(Range& range, int64_t size);
  static void insert(Range& range, int64_t offset, int64_t size);
  static void erase(Range& range, std::map<int64_t, int64_t>::iterator at);

  int64_t budget_;
  int64_t allocated_ = 0;
  int64_t requested_ = 0;
  int64_t reserved_ = 0;
  std::map<uint32_t, Range> ranges_;
  std::vector<Taken> taken_;
  std::vector<uint64_t> vacant_;
};

// The most that an arena reserves for a trace; nothing where that is beyond any address space.
// REQUIRES: validate_trace(trace), sizes up to kMaxRequest.
[[nodiscard]] std::optional<int64_t> best_fit_peak_bytes(const MemoryTrace& trace);

}  // namespace headroom::memory
