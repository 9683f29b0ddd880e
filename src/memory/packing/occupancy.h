// Occupancy: which addresses are taken in which sections, and the lowest place for one more item.
//
// A segment tree over sections. Each node holds two sets of addresses as sorted, merged ranges:
// `whole`, taken by items that cover all of the node's sections, and `any`, taken in at least one
// of them. What an item must avoid is then the union of O(log sections) such sets: `any` of the
// nodes that its lifetime is made of, and `whole` of the nodes above them. As first fit leaves few
// holes, a set is a handful of ranges however many items it stands for: an item costs about a
// microsecond among a hundred thousand.
//
// Items cannot be taken out one by one, but everything since mark() can. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::memory {

class Occupancy {
 public:
  explicit Occupancy(uint32_t sections);

  // The lowest offset at which `size` bytes are free in all of the sections [begin, end).
  // REQUIRES: begin < end <= sections, size > 0.
  [[nodiscard]] int64_t lowest_fit(uint32_t begin, uint32_t end, int64_t size);
  // Takes [offset, offset + size) in those sections.
  void take(uint32_t begin, uint32_t end, int64_t offset, int64_t size);

  // reset() goes back to what was taken when mark() was called last, or to nothing.
  void mark();
  void reset();

 private:
  struct Range {
    int64_t low = 0;
    int64_t high = 0;
  };
  using Ranges = std::vector<Range>;
  struct Cursor {
    const Range* at = nullptr;
    const Range* end = nullptr;
  };

  static void add(Ranges& ranges, int64_t low, int64_t high);
  void touch(uint32_t node);
  void look_at(const Ranges& ranges);

  uint32_t leaves_ = 1;
  std::vector<Ranges> whole_;
  std::vector<Ranges> any_;
  std::vector<Ranges> marked_whole_;
  std::vector<Ranges> marked_any_;
  std::vector<bool> is_touched_;
  std::vector<uint32_t> touched_;
  std::vector<Cursor> cursors_;
};

}  // namespace headroom::memory
