// A packing problem with its time reduced to what matters: sections.
//
// Which requests live together changes only at their bounds, and a set that is part of its
// neighbour's constrains nothing. What is left is the sequence of the largest such sets (the
// maximal cliques of the interval graph), the sections; an item lives in a run of them. Requests of
// no size or no lifetime are not items. Two items share a section exactly where their requests
// share a moment. O(n log n) to make; 16 bytes an item.
//
// Source: the idea of sections is MiniMalloc's (Moffitt, ASPLOS'23, section 4).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/packing/problem.h"

namespace headroom::memory {

struct PackingItem {
  uint32_t begin = 0;  // first section
  uint32_t end = 0;    // after the last one
  int64_t size = 0;    // rounded up to the alignment, above 0
  bool operator==(const PackingItem&) const = default;
};

struct Sections {
  std::vector<PackingItem> items;
  std::vector<int64_t> load;  // bytes that live, by section
  int64_t highest_load = 0;

  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(load.size()); }
  [[nodiscard]] uint32_t item_count() const { return static_cast<uint32_t>(items.size()); }
};

// `requests[i]` receives the index of item i's request. REQUIRES: check_problem(problem).
[[nodiscard]] Sections make_sections(const PackingProblem& problem,
                                     std::vector<uint32_t>& requests);

// The same for items whose times are sections of another such problem.
[[nodiscard]] Sections make_sections(std::span<const PackingItem> items);

}  // namespace headroom::memory
