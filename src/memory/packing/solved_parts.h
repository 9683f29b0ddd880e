// Parts that were solved: the same part again (the next iteration, the next micro-batch) gets the
// same answer. A look-up hashes the part's items; what is kept is a copy of them.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memory/packing/sections.h"

namespace headroom::memory {

template <typename Answer>
class SolvedParts {
 public:
  // Nothing where the part was not solved above the same base.
  [[nodiscard]] const Answer* find(const Sections& part, int64_t base) const {
    const auto [first, last] = by_hash_.equal_range(hash_of(part));
    for (auto at = first; at != last; ++at) {
      const Solved& solved = solved_[at->second];
      if (solved.base == base && solved.items == part.items) return &solved.answer;
    }
    return nullptr;
  }
  // Good until the next add().
  const Answer& add(Sections&& part, int64_t base, Answer&& answer) {
    by_hash_.emplace(hash_of(part), solved_.size());
    solved_.push_back({std::move(part.items), base, std::move(answer)});
    return solved_.back().answer;
  }

 private:
  struct Solved {
    std::vector<PackingItem> items;
    int64_t base = 0;
    Answer answer;
  };
  static uint64_t hash_of(const Sections& part) {
    uint64_t hash = part.items.size();
    const auto mix = [&hash](uint64_t value) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    };
    for (const PackingItem& item : part.items) {
      mix(uint64_t{item.begin} << 32 | item.end);
      mix(static_cast<uint64_t>(item.size));
    }
    return hash;
  }

  std::vector<Solved> solved_;
  std::unordered_multimap<uint64_t, size_t> by_hash_;
};

}  // namespace headroom::memory
