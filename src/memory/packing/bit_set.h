// A set of small numbers that finds the next and the previous member quickly: 64 to a word.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace headroom::memory {

class BitSet {
 public:
  explicit BitSet(uint32_t count) : words_(count / 64 + 1), count_(count) {}

  void insert(uint32_t i) { words_[i / 64] |= bit(i); }
  void erase(uint32_t i) { words_[i / 64] &= ~bit(i); }

  // The largest member up to `i`. REQUIRES: there is one.
  [[nodiscard]] uint32_t at_or_before(uint32_t i) const {
    uint32_t word = i / 64;
    uint64_t bits = words_[word] & (~uint64_t{0} >> (63 - i % 64));
    while (bits == 0) bits = words_[--word];
    return 64 * word + 63 - static_cast<uint32_t>(std::countl_zero(bits));
  }
  // The smallest member from `i` on, or the count where there is none. REQUIRES: i <= count.
  [[nodiscard]] uint32_t at_or_after(uint32_t i) const {
    uint32_t word = i / 64;
    uint64_t bits = words_[word] & (~uint64_t{0} << (i % 64));
    while (bits == 0) {
      if (++word == words_.size()) return count_;
      bits = words_[word];
    }
    return 64 * word + static_cast<uint32_t>(std::countr_zero(bits));
  }

 private:
  static uint64_t bit(uint32_t i) { return uint64_t{1} << (i % 64); }

  std::vector<uint64_t> words_;
  uint32_t count_;
};

}  // namespace headroom::memory
