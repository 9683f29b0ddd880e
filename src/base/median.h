// The median: of an even number the mean of the two in the middle.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace headroom {

// 0 where there is none. Linear time.
template <typename Number>
[[nodiscard]] Number median(std::vector<Number> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return std::midpoint(*std::max_element(values.begin(), middle), *middle);
}

}  // namespace headroom
