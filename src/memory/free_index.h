// FreeIndex: the cached blocks of one stream and pool, in best-fit order (size, then address).
//
// A sorted sequence cut into chunks of at most 64 entries, so that a look-up is a binary search in
// contiguous memory and an insertion moves at most 1.5 KB. A step's pool holds tens to hundreds of
// blocks, where this is several times faster than a node-based tree; with a million blocks it still
// costs microseconds. Not thread-safe. A Cursor is good until the next insertion or erasure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace headroom::memory {

class FreeIndex {
 public:
  struct Entry {
    int64_t size = 0;
    int64_t address = 0;
    uint32_t block = 0;
  };
  struct Cursor {
    uint32_t chunk = 0;
    uint32_t slot = 0;
    bool operator==(const Cursor&) const = default;
  };

  // REQUIRES: no entry with this size and address is there.
  void insert(const Entry& entry);
  // REQUIRES: the entry is there.
  void erase(int64_t size, int64_t address);
  void erase(Cursor cursor);

  // The first entry that is not below (size, address); end() where there is none.
  [[nodiscard]] Cursor lower_bound(int64_t size, int64_t address) const {
    return lower_bound(key_of(size, address));
  }
  [[nodiscard]] Cursor begin() const { return {0, 0}; }
  [[nodiscard]] Cursor end() const { return {static_cast<uint32_t>(chunks_.size()), 0}; }
  // REQUIRES: cursor != end().
  [[nodiscard]] const Entry& at(Cursor cursor) const {
    return chunks_[cursor.chunk]->entries[cursor.slot];
  }
  [[nodiscard]] Cursor next(Cursor cursor) const;
  // REQUIRES: cursor != begin().
  [[nodiscard]] Cursor previous(Cursor cursor) const;
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  static constexpr uint32_t kChunkEntries = 64;
  struct Chunk {
    uint32_t count = 0;
    std::array<Entry, kChunkEntries> entries;
    [[nodiscard]] const Entry& last() const { return entries[count - 1]; }
  };

  // Size and address as one number, which compares in two instructions and without a branch: both
  // are below 2^63.
  __extension__ using Key = unsigned __int128;
  [[nodiscard]] static Key key_of(int64_t size, int64_t address) {
    return Key{static_cast<uint64_t>(size)} << 64U | static_cast<uint64_t>(address);
  }
  [[nodiscard]] static Key key_of(const Entry& entry) { return key_of(entry.size, entry.address); }

  [[nodiscard]] Cursor lower_bound(Key key) const;
  void split_chunk(uint32_t chunk);

  std::vector<std::unique_ptr<Chunk>> chunks_;  // in order, none empty
  std::vector<Key> last_keys_;                  // by chunk: of its last entry
  size_t size_ = 0;
};

}  // namespace headroom::memory
