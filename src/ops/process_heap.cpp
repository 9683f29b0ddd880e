#include "ops/process_heap.h"

#include <algorithm>
#include <iterator>

namespace headroom::ops {

namespace {

constexpr int64_t kThreshold = 32 << 20;  // DEFAULT_MMAP_THRESHOLD_MAX, on 64 bits
constexpr int64_t kPad = 128 << 10;       // DEFAULT_TOP_PAD
constexpr int64_t kAlignment = 64;        // what PyTorch asks for
constexpr int64_t kLeast = 32;            // MINSIZE: no block is smaller
constexpr int64_t kGrain = 16;

// With what finding an aligned place in it may take (_int_memalign).
int64_t chunk_of(int64_t bytes) {
  return (bytes + kAlignment + kLeast + kGrain - 1) / kGrain * kGrain;
}

}  // namespace

bool ProcessHeap::keeps(int64_t bytes) { return chunk_of(bytes) < kThreshold; }

void ProcessHeap::add_free(int64_t at, int64_t size) {
  free_by_place_.emplace(at, size);
  free_by_size_.emplace(size, at);
}

void ProcessHeap::take_free(int64_t at, int64_t size) {
  free_by_place_.erase(at);
  free_by_size_.erase({size, at});
}

int64_t ProcessHeap::allocate(uint32_t block, int64_t bytes) {
  const int64_t size = chunk_of(bytes);
  if (const auto fit = free_by_size_.lower_bound({size, 0}); fit != free_by_size_.end()) {
    const auto [found, at] = *fit;
    take_free(at, found);
    const bool splits = found - size >= kLeast;
    if (splits) add_free(at + size, found - size);
    blocks_[block] = {at, splits ? size : found};
    return 0;
  }
  const int64_t missing = size - (end_ - top_);
  if (missing > 0 && size >= kThreshold) {
    blocks_[block] = {0, size, true};
    return bytes;
  }
  if (missing > 0) end_ += missing + kPad;
  blocks_[block] = {top_, size};
  top_ += size;
  return std::clamp<int64_t>(missing, 0, bytes);
}

void ProcessHeap::release(uint32_t block) {
  const auto known = blocks_.find(block);
  if (known == blocks_.end()) return;
  auto [at, size, is_own] = known->second;
  blocks_.erase(known);
  if (is_own) return;
  if (const auto next = free_by_place_.find(at + size); next != free_by_place_.end()) {
    const int64_t more = next->second;
    take_free(at + size, more);
    size += more;
  }
  if (const auto behind = free_by_place_.lower_bound(at); behind != free_by_place_.begin()) {
    const auto [place, before] = *std::prev(behind);
    if (place + before == at) {
      take_free(place, before);
      at = place;
      size += before;
    }
  }
  if (at + size != top_) {
    add_free(at, size);
    return;
  }
  top_ = at;
  if (end_ - top_ >= 2 * kThreshold) end_ = top_ + kPad;
}

}  // namespace headroom::ops
