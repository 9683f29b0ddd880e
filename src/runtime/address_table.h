// AddressTable: from the address of a live block to its number. Open addressing with linear probing
// and no tombstones; expected constant time, doubling where it is half full. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::runtime {

inline constexpr uint32_t kNoNumber = 0xffffffff;

class AddressTable {
 public:
  AddressTable() : entries_(size_t{1} << kFirstBits) {}

  // REQUIRES: `address` is not 0 and not there.
  void insert(int64_t address, uint32_t number) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    place(address, number);
    ++count_;
  }
  // kNoNumber where it is not there.
  [[nodiscard]] uint32_t find(int64_t address) const {
    for (size_t i = home(address);; i = (i + 1) & mask()) {
      if (entries_[i].address == address) return entries_[i].number;
      if (entries_[i].address == 0) return kNoNumber;
    }
  }
  // REQUIRES: `address` is there.
  void erase(int64_t address) {
    size_t hole = home(address);
    while (entries_[hole].address != address) hole = (hole + 1) & mask();
    // What follows without a gap moves back, unless that is before its home.
    for (size_t i = (hole + 1) & mask(); entries_[i].address != 0; i = (i + 1) & mask()) {
      const size_t wish = home(entries_[i].address);
      if (((i - wish) & mask()) >= ((i - hole) & mask())) {
        entries_[hole] = entries_[i];
        hole = i;
      }
    }
    entries_[hole] = {};
    --count_;
  }
  [[nodiscard]] size_t size() const { return count_; }

 private:
  static constexpr unsigned kFirstBits = 12;
  struct Entry {
    int64_t address = 0;
    uint32_t number = 0;
  };
  [[nodiscard]] size_t mask() const { return entries_.size() - 1; }
  [[nodiscard]] size_t home(int64_t address) const {
    // Fibonacci hashing; addresses are multiples of 512.
    return static_cast<size_t>((static_cast<uint64_t>(address) >> 9) * 0x9e3779b97f4a7c15ULL >>
                               shift_);
  }
  void place(int64_t address, uint32_t number) {
    size_t i = home(address);
    while (entries_[i].address != 0) i = (i + 1) & mask();
    entries_[i] = {address, number};
  }
  void grow() {
    std::vector<Entry> before(entries_.size() * 2);
    before.swap(entries_);
    --shift_;
    for (const Entry& entry : before) {
      if (entry.address != 0) place(entry.address, entry.number);
    }
  }

  std::vector<Entry> entries_;
  size_t count_ = 0;
  unsigned shift_ = 64 - kFirstBits;
};

}  // namespace headroom::runtime
