#include "memory/packing/occupancy.h"

#include <algorithm>
#include <bit>

namespace headroom::memory {

Occupancy::Occupancy(uint32_t sections) : leaves_(std::bit_ceil(std::max(sections, 1U))) {
  whole_.resize(size_t{2} * leaves_);
  any_.resize(size_t{2} * leaves_);
  is_touched_.resize(size_t{2} * leaves_);
}

void Occupancy::add(Ranges& ranges, int64_t low, int64_t high) {
  const auto first =
      std::lower_bound(ranges.begin(), ranges.end(), low,
                       [](const Range& range, int64_t at) { return range.high < at; });
  auto last = first;
  for (; last != ranges.end() && last->low <= high; ++last) {
    low = std::min(low, last->low);
    high = std::max(high, last->high);
  }
  if (first == last) {
    ranges.insert(first, {low, high});
    return;
  }
  *first = {low, high};
  ranges.erase(first + 1, last);
}

void Occupancy::touch(uint32_t node) {
  if (is_touched_[node]) return;
  is_touched_[node] = true;
  touched_.push_back(node);
}

void Occupancy::take(uint32_t begin, uint32_t end, int64_t offset, int64_t size) {
  const int64_t high = offset + size;
  const auto cover = [&](uint32_t node) {
    touch(node);
    add(whole_[node], offset, high);
    add(any_[node], offset, high);
  };
  uint32_t left = begin + leaves_;
  uint32_t right = end + leaves_;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) cover(left++);
    if (right % 2 == 1) cover(--right);
  }
  // Every node above one that is covered is above the first or the last leaf.
  left = (begin + leaves_) / 2;
  right = (end - 1 + leaves_) / 2;
  for (; left >= 1; left /= 2, right /= 2) {
    touch(left);
    add(any_[left], offset, high);
    if (right == left) continue;
    touch(right);
    add(any_[right], offset, high);
  }
}

void Occupancy::look_at(const Ranges& ranges) {
  if (!ranges.empty()) cursors_.push_back({ranges.data(), ranges.data() + ranges.size()});
}

int64_t Occupancy::lowest_fit(uint32_t begin, uint32_t end, int64_t size) {
  cursors_.clear();
  uint32_t left = begin + leaves_;
  uint32_t right = end + leaves_;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) look_at(any_[left++]);
    if (right % 2 == 1) look_at(any_[--right]);
  }
  left = (begin + leaves_) / 2;
  right = (end - 1 + leaves_) / 2;
  for (; left >= 1; left /= 2, right /= 2) {
    look_at(whole_[left]);
    if (right != left) look_at(whole_[right]);
  }
  // Round the sets until all in a row have nothing against the offset.
  int64_t offset = 0;
  size_t content = 0;
  for (size_t i = 0; content < cursors_.size(); i = i + 1 == cursors_.size() ? 0 : i + 1) {
    Cursor& cursor = cursors_[i];
    while (cursor.at != cursor.end && cursor.at->high <= offset) ++cursor.at;
    ++content;
    for (; cursor.at != cursor.end && cursor.at->low < offset + size; ++cursor.at) {
      offset = cursor.at->high;
      content = 1;
    }
  }
  return offset;
}

void Occupancy::mark() {
  marked_whole_ = whole_;
  marked_any_ = any_;
  for (const uint32_t node : touched_) is_touched_[node] = false;
  touched_.clear();
}

void Occupancy::reset() {
  const bool is_marked = !marked_any_.empty();
  for (const uint32_t node : touched_) {
    is_touched_[node] = false;
    if (is_marked) {
      whole_[node] = marked_whole_[node];
      any_[node] = marked_any_[node];
    } else {
      whole_[node].clear();
      any_[node].clear();
    }
  }
  touched_.clear();
}

}  // namespace headroom::memory
