#include "memory/packing/local_search.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "memory/packing/exact_search.h"
#include "memory/packing/orders.h"

namespace headroom::memory {
namespace {

constexpr size_t kSmallestWindow = 64;
constexpr size_t kOrdersPerWindow = 4;  // of the portfolio, before changes
constexpr size_t kMostExactItems = 600;
constexpr int64_t kExactNodes = 3'000;
constexpr int64_t kPatience = 100;  // changes a window, and half its items

}  // namespace

// Some items that may move, among obstacles that may not, as a small problem of its own.
struct LocalSearch::Window {
  std::vector<uint32_t> movable;  // of the whole problem; item i of `sections` is movable[i]
  Sections sections;              // movable items, then the obstacles, cut to the window
  Occupancy occupied{1};          // by the obstacles
  Sections alone;                 // the movable items, in the same sections
  std::vector<Obstacle> obstacles;
};

// An order of the movable items and what it leads to.
struct LocalSearch::State {
  std::vector<uint32_t> order;
  Placement placement;
  double excess = 0;  // bytes above the target, summed over items

  [[nodiscard]] bool is_no_worse_than(const State& other) const {
    if (excess <= other.excess) return true;
    return placement.height < other.placement.height;
  }
  [[nodiscard]] bool is_better_than(const State& other) const {
    if (placement.height != other.placement.height) {
      return placement.height < other.placement.height;
    }
    return excess < other.excess;
  }
};

LocalSearch::LocalSearch(const Sections& sections, Placement& placement, uint64_t seed)
    : sections_(sections),
      placement_(placement),
      random_(seed),
      by_begin_(sections.items.size()),
      wanted_(kSmallestWindow) {
  std::iota(by_begin_.begin(), by_begin_.end(), 0U);
  std::stable_sort(by_begin_.begin(), by_begin_.end(), [&](uint32_t a, uint32_t b) {
    return sections_.items[a].begin < sections_.items[b].begin;
  });
}

uint32_t LocalSearch::highest_item() const {
  uint32_t highest = 0;
  int64_t top = 0;
  for (uint32_t i = 0; i < sections_.item_count(); ++i) {
    const int64_t end = placement_.offsets[i] + sections_.items[i].size;
    if (end > top) {
      top = end;
      highest = i;
    }
  }
  return highest;
}

LocalSearch::Window LocalSearch::window_around(uint32_t item) const {
  uint32_t begin = sections_.items[item].begin;
  uint32_t end = sections_.items[item].end;
  uint32_t step = (end - begin) / 4 + 1;
  Window window;
  std::vector<PackingItem> items;
  for (;;) {
    window.movable.clear();
    auto i = std::partition_point(by_begin_.begin(), by_begin_.end(),
                                  [&](uint32_t k) { return sections_.items[k].begin < begin; });
    for (; i != by_begin_.end() && sections_.items[*i].begin < end; ++i) {
      if (sections_.items[*i].end <= end) window.movable.push_back(*i);
    }
    if (window.movable.size() >= wanted_ || (begin == 0 && end == sections_.count())) break;
    begin -= std::min(begin, step);
    end += std::min(sections_.count() - end, step);
    step += step / 2 + 1;
  }
  for (const uint32_t k : window.movable) items.push_back(sections_.items[k]);
  std::vector<int64_t> fixed_offsets;
  for (uint32_t k = 0; k < sections_.item_count(); ++k) {
    const PackingItem& other = sections_.items[k];
    if (other.begin >= end || other.end <= begin) continue;
    if (other.begin >= begin && other.end <= end) continue;
    items.push_back({std::max(other.begin, begin), std::min(other.end, end), other.size});
    fixed_offsets.push_back(placement_.offsets[k]);
  }
  window.sections = make_sections(items);
  window.occupied = Occupancy(window.sections.count());
  window.alone = window.sections;
  window.alone.items.resize(window.movable.size());
  for (size_t k = 0; k < fixed_offsets.size(); ++k) {
    const PackingItem& fixed = window.sections.items[window.movable.size() + k];
    window.occupied.take(fixed.begin, fixed.end, fixed_offsets[k], fixed.size);
    window.obstacles.push_back({fixed.begin, fixed.end, fixed_offsets[k], fixed.size});
    for (uint32_t s = fixed.begin; s < fixed.end; ++s) window.alone.load[s] -= fixed.size;
  }
  window.occupied.mark();
  return window;
}

// The state after `change`: an item that is above the target, or one of the chain beneath it, is
// placed earlier than it was, before another of the chain or anywhere.
std::vector<uint32_t> LocalSearch::changed_order(const Window& window, const State& state,
                                                 int64_t target) {
  const auto& items = window.sections.items;
  const auto& offsets = state.placement.offsets;
  const size_t count = window.movable.size();
  std::vector<uint32_t> position(count);
  std::vector<uint32_t> above;
  for (uint32_t p = 0; p < count; ++p) position[state.order[p]] = p;
  for (uint32_t i = 0; i < count; ++i) {
    if (offsets[i] + items[i].size > target) above.push_back(i);
  }
  if (above.empty()) return {};
  std::vector<uint32_t> chain{above[any_below(above.size())]};
  std::vector<uint32_t> beneath;
  do {
    const uint32_t upper = chain.back();
    beneath.clear();
    for (uint32_t i = 0; i < count; ++i) {
      if (offsets[i] + items[i].size == offsets[upper] && position[i] < position[upper] &&
          items[i].begin < items[upper].end && items[upper].begin < items[i].end) {
        beneath.push_back(i);
      }
    }
    if (!beneath.empty()) chain.push_back(beneath[any_below(beneath.size())]);
  } while (!beneath.empty());
  // Rather one near the top: a number below a number.
  const uint32_t moved = chain[any_below(1 + any_below(chain.size()))];
  const uint32_t from = position[moved];
  if (from == 0) return {};
  uint32_t to = any_below(2) == 0 ? position[chain[any_below(chain.size())]] : from;
  if (to >= from) to = static_cast<uint32_t>(any_below(from));
  std::vector<uint32_t> order = state.order;
  std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
  return order;
}

// Changes orders until the target is met, patience or effort ends. False: effort ended.
bool LocalSearch::climb(Window& window, State& best, int64_t target, Effort& effort) {
  const size_t count = window.movable.size();
  State current = best;
  const auto try_order = [&](std::vector<uint32_t> order) {
    State next{std::move(order), current.placement, 0};
    window.occupied.reset();
    place_first_fit(window.sections, next.order, window.occupied, next.placement);
    for (size_t i = 0; i < count; ++i) {
      const int64_t end = next.placement.offsets[i] + window.sections.items[i].size;
      next.excess += static_cast<double>(std::max<int64_t>(0, end - target));
    }
    if (next.is_better_than(best)) best = next;
    if (next.is_no_worse_than(current)) current = std::move(next);
    return effort.spend(static_cast<int64_t>(count));
  };
  if (!try_order(current.order)) return false;
  for (size_t which = 0; which < kOrdersPerWindow && best.placement.height > target; ++which) {
    constexpr std::array<size_t, kOrdersPerWindow> kUseful{0, 11, 5, 12};  // orders.cpp
    std::vector<uint32_t> order = make_order(window.sections, kUseful[which]);
    std::erase_if(order, [&](uint32_t i) { return i >= count; });
    if (!try_order(std::move(order))) return false;
    if (which + 1 == kOrdersPerWindow) current = best;
  }
  const int64_t steps = kPatience + static_cast<int64_t>(count) / 2;
  for (int64_t step = 0; step < steps && best.placement.height > target; ++step) {
    std::vector<uint32_t> order = changed_order(window, current, target);
    if (order.empty()) continue;
    if (!try_order(std::move(order))) return false;
  }
  return true;
}

void LocalSearch::write_back(const Window& window, const State& state) {
  for (size_t i = 0; i < window.movable.size(); ++i) {
    placement_.offsets[window.movable[i]] = state.placement.offsets[i];
  }
}

void LocalSearch::solve_exactly(const Window& window, State& best, int64_t target, Effort& effort) {
  ExactSearch exact(window.alone, target, window.obstacles);
  for (size_t order = 0; order < kCandidateOrderCount; ++order) {
    const ExactLimits limits{kExactNodes, static_cast<CandidateOrder>(order), 0, 0};
    const ExactOutcome outcome = exact.run(limits, effort);
    if (outcome == ExactOutcome::gave_up) continue;
    if (outcome == ExactOutcome::impossible) return;
    best.excess = 0;
    best.placement.height = 0;
    for (size_t i = 0; i < window.movable.size(); ++i) {
      best.placement.offsets[i] = exact.offsets()[i];
      const int64_t end = exact.offsets()[i] + window.alone.items[i].size;
      best.placement.height = std::max(best.placement.height, end);
    }
    return;
  }
}

// False: effort ended.
bool LocalSearch::repair(Window& window, int64_t target, Effort& effort) {
  const size_t count = window.movable.size();
  State start;
  start.order.resize(count);
  std::iota(start.order.begin(), start.order.end(), 0U);
  start.placement.offsets.resize(window.sections.items.size());
  for (size_t i = 0; i < count; ++i) {
    const int64_t offset = placement_.offsets[window.movable[i]];
    const int64_t end = offset + window.sections.items[i].size;
    start.placement.offsets[i] = offset;
    start.placement.height = std::max(start.placement.height, end);
    start.excess += static_cast<double>(std::max<int64_t>(0, end - target));
  }
  const auto& offsets = start.placement.offsets;
  std::stable_sort(start.order.begin(), start.order.end(),
                   [&](uint32_t a, uint32_t b) { return offsets[a] < offsets[b]; });
  State best = start;
  const bool goes_on = climb(window, best, target, effort);
  if (goes_on && best.placement.height > target && count <= kMostExactItems) {
    solve_exactly(window, best, target, effort);
  }
  const bool has_helped = best.is_better_than(start);
  if (has_helped) write_back(window, best);
  widen(has_helped);
  return goes_on;
}

void LocalSearch::widen(bool has_helped) {
  if (has_helped) {
    wanted_ = std::max(kSmallestWindow, wanted_ / 2);
    return;
  }
  wanted_ = std::min(wanted_ * 3 / 2, std::max(kSmallestWindow, sections_.items.size()));
  if (wanted_ >= sections_.items.size()) wanted_ = kSmallestWindow + any_below(200);
}

void LocalSearch::lower(int64_t target, Effort& effort) {
  if (sections_.items.empty()) return;
  for (;;) {
    const uint32_t highest = highest_item();
    placement_.height = placement_.offsets[highest] + sections_.items[highest].size;
    if (placement_.height <= target) return;
    // Finding the window looks at every item; that is cheaper than placing them.
    if (!effort.spend(static_cast<int64_t>(sections_.items.size() / 64) + 1)) return;
    Window window = window_around(highest);
    if (!repair(window, target, effort)) break;
  }
  const uint32_t highest = highest_item();
  placement_.height = placement_.offsets[highest] + sections_.items[highest].size;
}

}  // namespace headroom::memory
