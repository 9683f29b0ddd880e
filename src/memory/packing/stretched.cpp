#include "memory/packing/stretched.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

namespace headroom::memory {
namespace {

// Loads by section: bytes are added to a range, and the highest of a range is asked for, in
// O(log n). A node's `added` holds for all of its sections and is not in `highest` of those below.
class LoadTree {
 public:
  explicit LoadTree(const std::vector<int64_t>& load)
      : leaves_(std::bit_ceil(std::max<size_t>(load.size(), 1))),
        highest_(2 * leaves_),
        added_(2 * leaves_) {
    std::copy(load.begin(), load.end(), highest_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (size_t node = leaves_ - 1; node > 0; --node) pull(node);
  }

  [[nodiscard]] int64_t highest(uint32_t begin, uint32_t end) const {
    return highest_in(1, 0, leaves_, begin, end);
  }
  void add(uint32_t begin, uint32_t end, int64_t bytes) {
    add_in(1, 0, leaves_, begin, end, bytes);
  }

 private:
  void pull(size_t node) {
    highest_[node] = std::max(highest_[2 * node], highest_[2 * node + 1]) + added_[node];
  }
  [[nodiscard]] int64_t highest_in(size_t node, size_t low, size_t high, size_t begin,
                                   size_t end) const {
    if (end <= low || high <= begin) return 0;
    if (begin <= low && high <= end) return highest_[node];
    const size_t middle = (low + high) / 2;
    return added_[node] + std::max(highest_in(2 * node, low, middle, begin, end),
                                   highest_in(2 * node + 1, middle, high, begin, end));
  }
  void add_in(size_t node, size_t low, size_t high, size_t begin, size_t end, int64_t bytes) {
    if (end <= low || high <= begin) return;
    if (begin <= low && high <= end) {
      highest_[node] += bytes;
      added_[node] += bytes;
      return;
    }
    const size_t middle = (low + high) / 2;
    add_in(2 * node, low, middle, begin, end, bytes);
    add_in(2 * node + 1, middle, high, begin, end, bytes);
    pull(node);
  }

  size_t leaves_;
  std::vector<int64_t> highest_;
  std::vector<int64_t> added_;
};

// Those that live for at least half of the sections, but not for all; the longest first.
std::vector<uint32_t> long_items(const Sections& sections) {
  const auto length = [&](uint32_t i) { return sections.items[i].end - sections.items[i].begin; };
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < sections.item_count(); ++i) {
    if (length(i) < sections.count() && length(i) >= sections.count() / 2) found.push_back(i);
  }
  std::stable_sort(found.begin(), found.end(),
                   [&](uint32_t a, uint32_t b) { return length(a) > length(b); });
  return found;
}

}  // namespace

std::optional<Sections> stretched(const Sections& sections, int64_t target) {
  const std::vector<uint32_t> candidates = long_items(sections);
  if (candidates.empty()) return std::nullopt;
  std::vector<PackingItem> items = sections.items;
  LoadTree load(sections.load);
  bool is_any = false;
  for (const uint32_t i : candidates) {
    PackingItem& item = items[i];
    const int64_t most = target - item.size;
    if (load.highest(0, item.begin) > most) continue;
    if (load.highest(item.end, sections.count()) > most) continue;
    load.add(0, item.begin, item.size);
    load.add(item.end, sections.count(), item.size);
    item.begin = 0;
    item.end = sections.count();
    is_any = true;
  }
  if (!is_any) return std::nullopt;
  return make_sections(items);
}

}  // namespace headroom::memory
