// GeneralArena: best fit over mapped pages, for everything that no plan places: all requests before
// there is a plan, what falls back afterwards, and the private pools of graph captures.
//
// Each stream of each pool has two ranges, small requests (up to 1 MiB) apart from large ones so
// that they pin few pages. A range is a list of segments; a segment is address space that blocks
// tile: free, handed out, awaiting events, or without memory ("unmapped", whole pages). Where no
// free block is large enough the range grows: the caller maps the pages that begin_growth() names,
// and commits or aborts. It touches no memory and makes no driver call.
//
// Invariants:
//  1. The blocks of a segment tile it in address order; no two neighbours are both free, nor both
//     unmapped.
//  2. A free block is in the index of its range and nowhere else; blocks in use are in none.
//  3. Unmapped blocks begin and end on pages, and have no memory; all others have memory, but for
//     `moving` ones, which belong to whoever moves them.
//  4. Every address and size is a multiple of 512.
//
// Not thread-safe: REQUIRES the lock of device_allocator.h. O(log n) a request, in the free blocks
// of its range; growing is linear in the unmapped blocks of the range.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "memory/allocator_settings.h"
#include "memory/free_index.h"
#include "runtime/address_table.h"
#include "runtime/driver.h"

namespace headroom::runtime {

inline constexpr int64_t kAlignment = memory::kMinBlockSize;  // PyTorch's
inline constexpr int64_t kMostSmall = int64_t{1} << 20;
inline constexpr uint32_t kGeneralPool = 0;

enum class BlockState : uint8_t { vacant, free, live, pending, unmapped, moving };

class GeneralArena {
 public:
  explicit GeneralArena(int64_t page_bytes) : page_bytes_(page_bytes) {}

  struct Block {
    int64_t address = 0;
    int64_t size = 0;
    int64_t requested = 0;
    uint32_t previous = kNoNumber;
    uint32_t next = kNoNumber;
    uint32_t segment = 0;
    uint32_t serial = 0;  // of the request, for the log
    BlockState state = BlockState::vacant;
    bool has_uses = false;  // by other streams
  };
  struct Segment {
    int64_t address = 0;
    int64_t bytes = 0;
    uint32_t range = 0;
    uint32_t first = kNoNumber;  // block
    bool is_paged = false;       // else one piece of cuMemAlloc
    bool is_in_use = false;
    bool is_avoided = false;  // nothing more can be mapped in it
  };
  struct Range {
    uint32_t pool = kGeneralPool;
    CudaStream* stream = nullptr;
    bool is_small = false;
    bool is_kept = false;      // of a pool that is not released: its pages stay
    bool is_released = false;  // of one that was
    bool is_vacant = false;    // of none any more
    int64_t free_bytes = 0;
    std::vector<uint32_t> segments;
    memory::FreeIndex free;
  };
  // Pages to be mapped for a request. The block is `moving` until commit or abort.
  struct Growth {
    uint32_t block = kNoNumber;
    int64_t address = 0;  // of the pages
    int64_t bytes = 0;
  };
  struct Piece {
    int64_t address = 0;
    int64_t bytes = 0;
    uint32_t range = 0;
  };

  // Made where it is not there yet.
  uint32_t range_of(uint32_t pool, CudaStream* stream, int64_t size);
  // A live block of exactly `size`, or kNoNumber. REQUIRES: size is a positive multiple of 512.
  uint32_t take(uint32_t range, int64_t size);
  // REQUIRES: the block is live or pending.
  void give(uint32_t block);
  void set_pending(uint32_t block) { blocks_[block].state = BlockState::pending; }

  // Nothing where no address space is left in the range: add_segment(), and ask again.
  // Of no segment that is avoided, nor of `but_not`. REQUIRES: take() found nothing, under the same
  // lock.
  std::optional<Growth> begin_growth(uint32_t range, int64_t size, uint32_t but_not = kNoNumber);
  uint32_t commit_growth(const Growth& growth, int64_t size);
  void abort_growth(const Growth& growth);
  // What has pages in it stays in use; it grows no more.
  void avoid(uint32_t segment) { segments_[segment].is_avoided = true; }
  // Paged: address space without memory. Else a piece with memory, one free block.
  void add_segment(uint32_t range, int64_t address, int64_t bytes, bool is_paged);

  // All whole pages in free blocks, which are unmapped blocks from now on: the caller unmaps the
  // pages before it gives up the driver lock. Kept ranges are left alone, and so is the first
  // `keep` bytes' worth that is found.
  std::vector<Piece> collect_pages(int64_t keep = 0);
  // These pages stay mapped after all. REQUIRES: collected, and the driver lock held since.
  void restore(const std::vector<Piece>& pieces);
  // All segments of cuMemAlloc in which nothing lies; they are gone from here.
  std::vector<Piece> collect_segments();
  // The pool's ranges are like others from now on: what is freed there can be given back.
  void release_pool(uint32_t pool);
  // Is this a released pool's block, and the only one that is in use in its range?
  [[nodiscard]] bool is_last_of_released(uint32_t block) const;
  // As collect_pages() and collect_segments(), of released pools alone.
  std::vector<Piece> collect_released_pages();
  std::vector<Piece> collect_released_segments();
  // Forgets the pool; what it had of address space is added to `spans`. False where it has memory.
  bool drop_pool(uint32_t pool, std::vector<Piece>& spans);

  [[nodiscard]] Block& block(uint32_t number) { return blocks_[number]; }
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Range>>& ranges() const { return ranges_; }
  [[nodiscard]] const Block& block(uint32_t number) const { return blocks_[number]; }
  [[nodiscard]] int64_t free_bytes() const { return free_bytes_; }
  [[nodiscard]] int64_t free_blocks() const;
  [[nodiscard]] int64_t largest_free_block() const;
  // Of free blocks, what collect_pages() would take.
  [[nodiscard]] int64_t collectable_bytes() const;

  // Tests the invariants; the Error's `where` names the one that is broken. Linear, for tests.
  [[nodiscard]] Result<void> check() const;

 private:
  [[nodiscard]] uint32_t best_fit(const Range& range, int64_t size) const;
  uint32_t new_block();
  void drop(uint32_t number);
  void insert_free(uint32_t number);
  void erase_free(uint32_t number);
  uint32_t split(uint32_t number, int64_t size);
  void join_next(uint32_t number);
  uint32_t settle(uint32_t number, BlockState state);
  [[nodiscard]] bool is(uint32_t number, BlockState state) const {
    return number != kNoNumber && blocks_[number].state == state;
  }
  [[nodiscard]] Piece whole_pages(const Block& block) const;
  void collect_pages_of(Range& range, int64_t& keep, std::vector<Piece>& pieces);
  void collect_segments_of(Range& range, std::vector<Piece>& pieces);

  int64_t page_bytes_;
  int64_t free_bytes_ = 0;
  std::vector<Block> blocks_;
  std::vector<uint32_t> vacant_;
  std::vector<Segment> segments_;
  std::vector<std::unique_ptr<Range>> ranges_;
};

}  // namespace headroom::runtime
