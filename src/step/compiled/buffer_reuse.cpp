#include "step/compiled/buffer_reuse.h"

#include <algorithm>

namespace headroom::step {

RangeMaxima::RangeMaxima(const std::vector<int64_t>& numbers)
    : size_(std::max<size_t>(numbers.size(), 1)), most_(4 * size_), added_(4 * size_) {
  for (size_t i = 0; i < numbers.size(); ++i) add(i, i + 1, numbers[i]);
}

int64_t RangeMaxima::greatest(size_t begin, size_t end) const {
  return begin < end ? greatest(0, 0, size_, begin, end) : 0;
}

int64_t RangeMaxima::greatest(size_t node, size_t low, size_t high, size_t begin,
                              size_t end) const {
  if (begin <= low && high <= end) return most_[node];
  const size_t middle = low + (high - low) / 2;
  int64_t most = INT64_MIN;
  if (begin < middle) most = std::max(most, greatest(2 * node + 1, low, middle, begin, end));
  if (end > middle) most = std::max(most, greatest(2 * node + 2, middle, high, begin, end));
  return most + added_[node];
}

void RangeMaxima::add(size_t begin, size_t end, int64_t number) {
  if (begin < end) add(0, 0, size_, begin, end, number);
}

void RangeMaxima::add(size_t node, size_t low, size_t high, size_t begin, size_t end,
                      int64_t number) {
  if (begin <= low && high <= end) {
    most_[node] += number;
    added_[node] += number;
    return;
  }
  const size_t middle = low + (high - low) / 2;
  if (begin < middle) add(2 * node + 1, low, middle, begin, end, number);
  if (end > middle) add(2 * node + 2, middle, high, begin, end, number);
  most_[node] = std::max(most_[2 * node + 1], most_[2 * node + 2]) + added_[node];
}

BufferReuse::BufferReuse(const std::vector<int64_t>& live)
    : peak_(live.empty() ? 0 : *std::ranges::max_element(live)), live_(live) {}

void BufferReuse::end(const JointTensor& value, uint32_t kernel) {
  pool_[{value.dtype, bytes_of(value)}].push_back({.value = value.value, .kernel = kernel});
}

std::optional<BufferReuse::Ended> BufferReuse::take(const JointTensor& value, uint32_t kernel) {
  const int64_t bytes = bytes_of(value);
  const auto ended = pool_.find({value.dtype, bytes});
  if (ended == pool_.end() || ended->second.empty()) return std::nullopt;
  const Ended last = ended->second.back();
  const size_t between = size_t{last.kernel} + 1;
  if (between != kernel && bytes + live_.greatest(between, kernel) > peak_) return std::nullopt;
  live_.add(between, kernel, bytes);
  ended->second.pop_back();
  return last;
}

}  // namespace headroom::step
