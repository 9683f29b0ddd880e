// The blocks of a key-value cache: handed out to sequences, and kept for prompts that begin alike.
//
// Invariants
//   1. free + in evictable groups + in used groups + private of sequences = all blocks.
//   2. A group holds the blocks of one run of prompt tokens, known by its hash, and is there once.
//      It is used by as many sequences as `users` says; with none it may be evicted, the one whose
//      last user left longest ago first, of one sequence its last group first.
//   3. A block is taken only if it is free, or freed by eviction.
//
// As vLLM's block pool does it (v1/core/block_pool.py, 0.10), at the coarser grain of a trace's
// hashes. Some hash look-ups a prompt, constant time a block; not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

namespace headroom::serving {

class KvBlocks {
 public:
  // `group_blocks`: of a hash.
  KvBlocks(int64_t blocks, int64_t group_blocks)
      : free_(blocks), all_(blocks), grain_(group_blocks) {}

  [[nodiscard]] int64_t all() const { return all_; }
  [[nodiscard]] int64_t available() const { return free_ + evictable_blocks(); }
  [[nodiscard]] int64_t in_use() const { return all_ - available(); }

  // How many of the leading hashes are there.
  [[nodiscard]] int64_t hits(std::span<const uint64_t> hashes) const;
  // Uses these groups and takes `blocks` beside them; nothing is changed where that is not to be
  // had. REQUIRES: all hashes are there.
  [[nodiscard]] bool take(std::span<const uint64_t> hashes, int64_t blocks, int64_t watermark = 0);
  // Private blocks of a sequence become a group that it uses. False, and nothing done, where there
  // is one already.
  bool share(uint64_t hash);
  // Gives back private blocks, and stops using these groups.
  void release(std::span<const uint64_t> hashes, int64_t blocks);

 private:
  struct Group {
    int64_t users = 0;
    std::list<uint64_t>::iterator place;  // among the evictable, where it has no users
  };
  [[nodiscard]] int64_t evictable_blocks() const {
    return grain_ * static_cast<int64_t>(evictable_.size());
  }
  std::unordered_map<uint64_t, Group> groups_;
  std::list<uint64_t> evictable_;  // the next to go first
  int64_t free_;
  int64_t all_;
  int64_t grain_;
};

}  // namespace headroom::serving
