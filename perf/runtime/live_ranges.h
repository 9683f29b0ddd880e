// What is handed out and not released: a shadow that tells where two blocks share a byte.
// O(log n) a call; for one thread.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace headroom::runtime::perf {

class LiveRanges {
 public:
  // False where a byte of it is handed out already. REQUIRES: bytes > 0.
  bool add(const void* pointer, int64_t bytes) {
    const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
    const auto after = ends_.lower_bound(begin);
    if (after != ends_.end() && after->first < begin + bytes) return false;
    if (after != ends_.begin() && std::prev(after)->second > begin) return false;
    ends_.emplace_hint(after, begin, begin + bytes);
    return true;
  }
  void remove(const void* pointer) {
    ends_.erase(static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer)));
  }

 private:
  std::map<int64_t, int64_t> ends_;  // by begin
};

}  // namespace headroom::runtime::perf
