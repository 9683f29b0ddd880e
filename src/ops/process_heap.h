// The heap of a process that allocates as glibc does: which memory is new to it each time.
//
// From malloc/malloc.c of glibc 2.36, of one arena and blocks that matter (PyTorch asks for them
// aligned to 64 bytes):
//   1. What fits a free block takes the smallest that it fits; else what is left at the heap's end.
//   2. Else one of 32 MiB or more is a block of its own, new from the system, and goes back to it
//      when freed. (The threshold is lower at first and grows to the largest such block that was
//      freed, 32 MiB at most: of a process that has made or read a model it has grown.)
//   3. Else the heap grows by what is missing and 128 KiB.
//   4. Freed blocks join free neighbours. Where 64 MiB, two thresholds, or more are free at the
//      end, all but 128 KiB goes back to the system.
// An estimate: what an operator asks for within itself no trace has, small blocks lie elsewhere
// (bins), and what _int_memalign gives back in front of and behind a block is taken as the block's
// own, so that of blocks of one size fewer are new here than there. Logarithmic in the free blocks.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>

namespace headroom::ops {

class ProcessHeap {
 public:
  // How many bytes of it the process has not had before. REQUIRES: `block` is not there.
  int64_t allocate(uint32_t block, int64_t bytes);
  // Nothing where it is not there.
  void release(uint32_t block);
  // False of a block so large that it is new from the system each time.
  [[nodiscard]] static bool keeps(int64_t bytes);

 private:
  struct Block {
    int64_t at = 0;
    int64_t size = 0;
    bool is_own = false;  // not of the heap
  };
  void add_free(int64_t at, int64_t size);
  void take_free(int64_t at, int64_t size);

  int64_t end_ = 0;  // of the heap
  int64_t top_ = 0;  // from which on it is free
  std::unordered_map<uint32_t, Block> blocks_;
  std::map<int64_t, int64_t> free_by_place_;
  std::set<std::pair<int64_t, int64_t>> free_by_size_;
};

}  // namespace headroom::ops
