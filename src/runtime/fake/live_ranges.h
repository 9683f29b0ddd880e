// What is handed out and not released: a shadow that tells where two blocks share a byte, and what
// was noted of a block. O(log n) a call; for one thread, or behind a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace headroom::runtime::fake {

struct Nothing {};

template <typename Noted = Nothing>
class LiveRanges {
 public:
  // False where a byte of it is handed out already. REQUIRES: bytes > 0.
  bool add(const void* pointer, int64_t bytes, Noted noted = {}) {
    const int64_t begin = address_of(pointer);
    const auto after = ranges_.lower_bound(begin);
    if (after != ranges_.end() && after->first < begin + bytes) return false;
    if (after != ranges_.begin() && std::prev(after)->second.end > begin) return false;
    ranges_.emplace_hint(after, begin, Range{begin + bytes, std::move(noted)});
    return true;
  }
  // What was noted of it; nothing where no block begins there.
  std::optional<Noted> remove(const void* pointer) {
    const auto at = ranges_.find(address_of(pointer));
    if (at == ranges_.end()) return std::nullopt;
    std::optional<Noted> noted = std::move(at->second.noted);
    ranges_.erase(at);
    return noted;
  }
  // The same of one that stays. REQUIRES: a block begins there.
  [[nodiscard]] const Noted& at(const void* pointer) const {
    return ranges_.at(address_of(pointer)).noted;
  }
  [[nodiscard]] size_t count() const { return ranges_.size(); }

 private:
  struct Range {
    int64_t end = 0;
    Noted noted;
  };
  static int64_t address_of(const void* pointer) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
  }
  std::map<int64_t, Range> ranges_;  // by begin
};

}  // namespace headroom::runtime::fake
