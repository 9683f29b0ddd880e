#include "memory/packing/components.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headroom::memory {
namespace {

// Puts what lives all through the part at its bottom. Whether there was any.
bool lay_bottom(const Sections& sections, Component& part, std::vector<int64_t>& offsets) {
  const auto lives_throughout = [&](uint32_t i) {
    return sections.items[i].begin == part.begin && sections.items[i].end == part.end;
  };
  const size_t before = part.items.size();
  for (const uint32_t i : part.items) {
    if (!lives_throughout(i)) continue;
    offsets[i] = part.base;
    part.base += sections.items[i].size;
  }
  std::erase_if(part.items, lives_throughout);
  return part.items.size() < before;
}

// The pieces between boundaries that no item crosses. REQUIRES: items in order of their beginnings.
std::vector<Component> pieces_of(const Sections& sections, const Component& part) {
  std::vector<Component> pieces;
  for (const uint32_t i : part.items) {
    const PackingItem& item = sections.items[i];
    if (pieces.empty() || item.begin >= pieces.back().end) {
      pieces.push_back({{}, part.base, item.begin, item.end});
    }
    pieces.back().items.push_back(i);
    pieces.back().end = std::max(pieces.back().end, item.end);
  }
  return pieces;
}

}  // namespace

std::vector<Component> cut_into_components(const Sections& sections,
                                           std::vector<int64_t>& offsets) {
  std::vector<Component> parts(1);
  parts[0].items.resize(sections.items.size());
  parts[0].end = sections.count();
  std::iota(parts[0].items.begin(), parts[0].items.end(), 0U);
  std::stable_sort(parts[0].items.begin(), parts[0].items.end(), [&](uint32_t a, uint32_t b) {
    return sections.items[a].begin < sections.items[b].begin;
  });
  std::vector<Component> done;
  for (int round = 0; round < kMaxCuttingRounds && !parts.empty(); ++round) {
    std::vector<Component> next;
    for (Component& part : parts) {
      const bool is_lower = lay_bottom(sections, part, offsets);
      std::vector<Component> pieces = pieces_of(sections, part);
      const bool is_cut = pieces.size() > 1 || is_lower || round == 0;
      for (Component& piece : pieces) (is_cut ? next : done).push_back(std::move(piece));
    }
    parts = std::move(next);
  }
  std::move(parts.begin(), parts.end(), std::back_inserter(done));
  return done;
}

Sections sections_of(const Sections& whole, const Component& component) {
  std::vector<PackingItem> items;
  items.reserve(component.items.size());
  for (const uint32_t i : component.items) items.push_back(whole.items[i]);
  return make_sections(items);
}

}  // namespace headroom::memory
