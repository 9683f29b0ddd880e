#include "memory/packing/sections.h"

#include <algorithm>
#include <numeric>

#include "base/units.h"

namespace headroom::memory {
namespace {

struct Lifetime {
  int64_t lower = 0;
  int64_t upper = 0;
};

void sum_loads(Sections& sections, uint32_t count) {
  std::vector<int64_t> change(count + 1);
  for (const PackingItem& item : sections.items) {
    change[item.begin] += item.size;
    change[item.end] -= item.size;
  }
  sections.load.resize(count);
  int64_t load = 0;
  for (uint32_t s = 0; s < count; ++s) {
    load += change[s];
    sections.load[s] = load;
    sections.highest_load = std::max(sections.highest_load, load);
  }
}

template <typename Key>
std::vector<uint32_t> sorted_by(size_t count, const Key& key) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  return order;
}

// Sets begin and end of every item. A section is closed by the first end after a beginning.
void number_sections(std::span<const Lifetime> lifetimes, Sections& sections) {
  const size_t count = lifetimes.size();
  const auto by_lower = sorted_by(count, [&](uint32_t i) { return lifetimes[i].lower; });
  const auto by_upper = sorted_by(count, [&](uint32_t i) { return lifetimes[i].upper; });
  uint32_t closed = 0;
  bool open = false;
  size_t ended = 0;
  for (const uint32_t i : by_lower) {
    while (ended < count && lifetimes[by_upper[ended]].upper <= lifetimes[i].lower) {
      if (open) ++closed;
      open = false;
      sections.items[by_upper[ended++]].end = closed;
    }
    sections.items[i].begin = closed;
    open = true;
  }
  if (open) ++closed;
  for (; ended < count; ++ended) sections.items[by_upper[ended]].end = closed;
  sum_loads(sections, closed);
}

}  // namespace

Sections make_sections(const PackingProblem& problem, std::vector<uint32_t>& requests) {
  Sections sections;
  std::vector<Lifetime> lifetimes;
  requests.clear();
  for (size_t i = 0; i < problem.requests.size(); ++i) {
    const PackingRequest& request = problem.requests[i];
    if (request.size == 0 || request.lower == request.upper) continue;
    sections.items.push_back({0, 0, round_up(request.size, problem.alignment)});
    lifetimes.push_back({request.lower, request.upper});
    requests.push_back(static_cast<uint32_t>(i));
  }
  number_sections(lifetimes, sections);
  return sections;
}

Sections make_sections(std::span<const PackingItem> items) {
  Sections sections;
  sections.items.assign(items.begin(), items.end());
  std::vector<Lifetime> lifetimes;
  lifetimes.reserve(items.size());
  for (const PackingItem& item : items) lifetimes.push_back({item.begin, item.end});
  number_sections(lifetimes, sections);
  return sections;
}

}  // namespace headroom::memory
