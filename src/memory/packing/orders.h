// The portfolio: orders of items for first fit, the ones that do best on most first.
//
// What decides is how ties are broken and what is stacked at the moment of the highest load
// (docs/algorithms/packing.md has the measurements). No order is best on all problems, and an order
// costs little, so several are tried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "memory/packing/sections.h"

namespace headroom::memory {

[[nodiscard]] size_t order_count();
// "size, then start", ...: for reports. REQUIRES (both): which < order_count().
[[nodiscard]] std::string_view order_name(size_t which);
// A permutation of the items. O(n log n), and for the order of groups a round of first fit.
[[nodiscard]] std::vector<uint32_t> make_order(const Sections& sections, size_t which);

}  // namespace headroom::memory
