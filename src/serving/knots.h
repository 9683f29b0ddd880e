// Tables of a law: entries in increasing order of one member, lines between them, the first and the
// last line beyond.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace headroom::serving {

// The entry at the lower end of the line that holds `x`. REQUIRES: two entries.
template <typename Knot>
size_t line_of(const std::vector<Knot>& knots, double Knot::*place, double x) {
  const auto above = std::upper_bound(
      knots.begin(), knots.end(), x, [&](double at, const Knot& knot) { return at < knot.*place; });
  const auto index = std::max<std::ptrdiff_t>(above - knots.begin(), 1) - 1;
  return std::min(static_cast<size_t>(index), knots.size() - 2);
}

[[nodiscard]] inline double along(double x, double from, double to, double at_from, double at_to) {
  return at_from + (at_to - at_from) * (x - from) / (to - from);
}

template <typename Knot>
bool is_increasing(const std::vector<Knot>& knots, double Knot::*place) {
  return std::adjacent_find(knots.begin(), knots.end(), [&](const Knot& a, const Knot& b) {
           return !(a.*place < b.*place);
         }) == knots.end();
}

}  // namespace headroom::serving
