// FreeIndex: the cached blocks of one stream and pool, in best-fit order (size, then address).
//
// Bins of neighbouring sizes, sixteen to an octave, with a bit for each that is not empty: a
// look-up finds its bin by arithmetic and searches the few blocks in it, or takes the next bin's
// first. A bin's blocks stand in sorted runs of at most 64, so that no operation moves more
// than 1.5 KB and a million blocks of one size still cost microseconds. Not thread-safe. A Cursor
// is good until the next insertion or erasure. Invariants:
//   1. Entries go up from run to run of a bin and from bin to bin.
//   2. A run is empty only where it is the one run of its bin; the bin's bit says so.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
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
    uint32_t bin = 0;
    uint32_t run = 0;
    uint32_t slot = 0;
    bool operator==(const Cursor&) const = default;
  };

  // REQUIRES: no entry with this size and address is there, and neither is negative.
  void insert(const Entry& entry);
  // REQUIRES: the entry is there.
  void erase(int64_t size, int64_t address);
  void erase(Cursor cursor);

  // The first entry that is not below (size, address); end() where there is none.
  [[nodiscard]] Cursor lower_bound(int64_t size, int64_t address) const;
  [[nodiscard]] Cursor begin() const { return first_from(0); }
  [[nodiscard]] Cursor end() const { return {kBins, 0, 0}; }
  // REQUIRES: cursor != end().
  [[nodiscard]] const Entry& at(Cursor cursor) const {
    return bins_[cursor.bin].runs[cursor.run][cursor.slot];
  }
  [[nodiscard]] Cursor next(Cursor cursor) const;
  // REQUIRES: cursor != begin().
  [[nodiscard]] Cursor previous(Cursor cursor) const;
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  static constexpr size_t kRunEntries = 64;
  static constexpr uint32_t kWords = 13;
  static constexpr uint32_t kBins =
      64 * kWords;  // 55 bits of 512 bytes each: 16 + 50 * 16 and some

  using Run = std::vector<Entry>;
  struct Bin {
    std::vector<Run> runs;
  };

  // Size and address as one number, which compares in two instructions and without a branch: both
  // are below 2^63.
  __extension__ using Key = unsigned __int128;
  [[nodiscard]] static Key key_of(int64_t size, int64_t address) {
    return Key{static_cast<uint64_t>(size)} << 64U | static_cast<uint64_t>(address);
  }
  [[nodiscard]] static Key key_of(const Entry& entry) { return key_of(entry.size, entry.address); }

  // Goes up with the size. In units of 512 bytes, 0 to 15 have bins of their own, and each octave
  // above has sixteen.
  [[nodiscard]] static uint32_t bin_of(int64_t size) {
    const uint64_t units = static_cast<uint64_t>(size) >> 9U;
    if (units < 16) return static_cast<uint32_t>(units);
    const auto octave = static_cast<uint32_t>(std::bit_width(units)) - 5;  // 16 to 31 units: 0
    return 16 * (octave + 1) + static_cast<uint32_t>((units >> octave) & 15U);
  }
  [[nodiscard]] static size_t place_in(const Run& run, Key key);

  [[nodiscard]] bool has(uint32_t bin) const { return (filled_[bin / 64] >> bin % 64 & 1U) != 0; }
  [[nodiscard]] Cursor first_from(uint32_t bin) const;

  std::vector<Bin> bins_;                  // kBins, once there was an entry
  std::array<uint64_t, kWords> filled_{};  // by bin: whether there is an entry in it
  size_t size_ = 0;
};

}  // namespace headroom::memory
