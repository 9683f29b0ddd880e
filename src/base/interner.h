// Interner: each of many byte strings is kept once, under a number that counts up from 0.
//
// For names, paths and call stacks, which recordings repeat millions of times. Open addressing over
// numbers; the bytes lie in blocks that never move, so a view stays good as long as the interner.
// About 10 ns for a short string that is known. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace headroom {

class Interner {
 public:
  Interner();

  // The number of `bytes`, new or known. REQUIRES: fewer than 2^31 different strings.
  uint32_t intern(std::string_view bytes) {
    const uint64_t hash = hash_bytes(bytes, seed_);
    const size_t at = slot_of(bytes, hash);
    return slots_[at].number != kVacant ? slots_[at].number : add(bytes, hash, at);
  }
  [[nodiscard]] std::optional<uint32_t> find(std::string_view bytes) const {
    const Slot& slot = slots_[slot_of(bytes, hash_bytes(bytes, seed_))];
    if (slot.number == kVacant) return std::nullopt;
    return slot.number;
  }
  // REQUIRES: number < size().
  [[nodiscard]] std::string_view operator[](uint32_t number) const { return strings_[number]; }
  [[nodiscard]] size_t size() const { return strings_.size(); }

 private:
  struct Slot {
    uint32_t hash =
        0;  // its low half, so that most strangers are told apart without a look at them
    uint32_t number = kVacant;
  };
  static constexpr uint32_t kVacant = ~uint32_t{0};
  static constexpr size_t kMostStrings = size_t{1} << 31;

  // Where the string is, or the vacant slot where it belongs.
  [[nodiscard]] size_t slot_of(std::string_view bytes, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    const auto low = static_cast<uint32_t>(hash);
    for (size_t at = low & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.number == kVacant) return at;
      if (slot.hash == low && strings_[slot.number] == bytes) return at;
    }
  }
  uint32_t add(std::string_view bytes, uint64_t hash, size_t at);
  std::string_view keep(std::string_view bytes);
  void grow();

  uint64_t seed_;
  std::vector<Slot> slots_;  // a power of two of them, at most half of them taken
  std::vector<std::string_view> strings_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* vacant_ = nullptr;  // of the last block
  size_t vacant_bytes_ = 0;
};

}  // namespace headroom
