#include "memory/packing/homo_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "memory/packing/orders.h"
#include "memory/packing/solved_parts.h"

namespace headroom::memory {
namespace {

// The group as a problem of its own: the same for every micro-batch that does the same.
Sections alone(const Sections& sections, const HomoPhaseGroup& group) {
  std::vector<PackingItem> items;
  items.reserve(group.items.size());
  for (const uint32_t i : group.items) items.push_back(sections.items[i]);
  return make_sections(items);
}

}  // namespace

std::vector<uint32_t> phases_of(const Sections& sections, double share) {
  std::vector<uint32_t> phases(sections.count());
  const auto least = static_cast<int64_t>(share * static_cast<double>(sections.highest_load));
  uint32_t phase = 0;
  uint32_t turn = 0;  // where the load was highest, going up, or lowest, going down
  bool is_rising = true;
  for (uint32_t s = 0; s < sections.count(); ++s) {
    const int64_t beyond = (sections.load[s] - sections.load[turn]) * (is_rising ? 1 : -1);
    if (beyond > 0) turn = s;
    if (beyond < -least) {
      // It has turned: the new phase begins behind the extreme.
      ++phase;
      for (uint32_t k = turn + 1; k < s; ++k) phases[k] = phase;
      is_rising = !is_rising;
      turn = s;
    }
    phases[s] = phase;
  }
  return phases;
}

std::vector<HomoPhaseGroup> homo_phase_groups(const Sections& sections, double share) {
  const std::vector<uint32_t> phases = phases_of(sections, share);
  std::vector<uint32_t> by_begin(sections.items.size());
  std::iota(by_begin.begin(), by_begin.end(), 0U);
  std::stable_sort(by_begin.begin(), by_begin.end(), [&](uint32_t a, uint32_t b) {
    return sections.items[a].begin < sections.items[b].begin;
  });
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
  std::vector<HomoPhaseGroup> groups;
  for (const uint32_t i : by_begin) {
    const PackingItem& item = sections.items[i];
    const uint32_t first = phases[item.begin];
    const uint32_t last = phases[item.end - 1];
    const auto [at, is_new] =
        numbers.try_emplace({first, last}, static_cast<uint32_t>(groups.size()));
    if (is_new) groups.push_back({first, last, item.begin, item.end, {}, {}});
    HomoPhaseGroup& group = groups[at->second];
    group.end = std::max(group.end, item.end);
    group.items.push_back(i);
  }
  SolvedParts<Placement> solved;
  for (HomoPhaseGroup& group : groups) {
    Sections part = alone(sections, group);
    const Placement* plan = solved.find(part, 0);
    if (plan == nullptr) {
      Placement made = first_fit(part, make_order(part, 0));
      plan = &solved.add(std::move(part), 0, std::move(made));
    }
    group.plan = *plan;
  }
  return groups;
}

std::vector<HomoSizeGroup> homo_size_groups(const std::vector<HomoPhaseGroup>& groups) {
  std::vector<uint32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(-groups[a].plan.height, groups[a].begin) <
           std::tuple(-groups[b].plan.height, groups[b].begin);
  });
  std::vector<HomoSizeGroup> by_size;
  for (const uint32_t group : order) {
    const int64_t height = groups[group].plan.height;
    if (by_size.empty() || by_size.back().height != height) by_size.push_back({height, {}});
    by_size.back().groups.push_back(group);
  }
  return by_size;
}

std::vector<uint32_t> homo_group_order(const Sections& sections, double share) {
  const std::vector<HomoPhaseGroup> groups = homo_phase_groups(sections, share);
  std::vector<uint32_t> order;
  order.reserve(sections.items.size());
  for (const HomoSizeGroup& size : homo_size_groups(groups)) {
    for (const uint32_t number : size.groups) {
      const HomoPhaseGroup& group = groups[number];
      std::vector<uint32_t> inside(group.items.size());
      std::iota(inside.begin(), inside.end(), 0U);
      std::stable_sort(inside.begin(), inside.end(), [&](uint32_t a, uint32_t b) {
        return group.plan.offsets[a] < group.plan.offsets[b];
      });
      for (const uint32_t i : inside) order.push_back(group.items[i]);
    }
  }
  return order;
}

}  // namespace headroom::memory
