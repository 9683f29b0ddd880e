// Local search on the chain that supports the peak.
//
// Problem: a plan exceeds its target, mostly by a few items. The highest of them is taken, with all
// items that live inside a window of time around it; the rest of the plan stays where it is. The
// window's items are placed again, first fit, in orders that are changed step by step: an item of
// the chain (the one at the top, one that it rests on, one that this rests on, ... down to the
// floor) goes earlier. A change stays when it does not make things worse: the height first, then
// the bytes above the target, summed. Where a window brings nothing, the next one is wider.
//
// Invariants:
//  1. The placement is valid after every call, and never higher than before.
//  2. Items outside of the window do not move.
//
// Cost: a step places the window's items again, about a microsecond each, whatever the size of the
// problem; finding the window is linear in the items. Deterministic for a seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "memory/packing/effort.h"
#include "memory/packing/first_fit.h"
#include "memory/packing/sections.h"

namespace headroom::memory {

class LocalSearch {
 public:
  // Both must outlive the search.
  LocalSearch(const Sections& sections, Placement& placement, uint64_t seed);

  // Lowers the placement's height towards `target` until it is there, or `effort` is spent.
  void lower(int64_t target, Effort& effort);

 private:
  struct Window;
  struct State;

  [[nodiscard]] uint32_t highest_item() const;
  [[nodiscard]] Window window_around(uint32_t item) const;
  bool repair(Window& window, int64_t target, Effort& effort);
  bool climb(Window& window, State& current, int64_t target, Effort& effort);
  void solve_exactly(const Window& window, State& best, int64_t target, Effort& effort);
  [[nodiscard]] std::vector<uint32_t> changed_order(const Window& window, const State& state,
                                                    int64_t target);
  void write_back(const Window& window, const State& state);
  void widen(bool has_helped);
  uint64_t any_below(uint64_t count) { return random_() % count; }

  const Sections& sections_;
  Placement& placement_;
  std::mt19937_64 random_;
  std::vector<uint32_t> by_begin_;
  size_t wanted_;  // items in the next window
};

}  // namespace headroom::memory
