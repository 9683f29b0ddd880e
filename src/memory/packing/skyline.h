// Skyline: a plan that is being filled from below, and where its next gap must be decided.
//
// Every section has a floor: what is below is decided, what is still to be placed lies above. Equal
// floors side by side, with items that cross from one to the next, form a run; a run that is lower
// than both neighbours is a valley. An item that reaches beyond a valley cannot lie on its ground,
// so the ground at a section of a valley can be covered only by the items inside it that live there
// (its candidates), or by nothing, which wastes space. A section has `slack`, what it may waste
// before its load no longer fits below the capacity.
//
// Obstacles are what may not move: they have their offsets, and each begins in the first section or
// ends in the last, as what reaches into a window of time does. A floor that comes to one goes on
// above it.
//
// Invariants:
//  1. Every item that is not placed will lie at or above the highest floor of its sections.
//  2. slack[s] = capacity - floor[s] - (sizes of the items at s that are not placed), never
//  negative.
//  3. Sections with nothing left to place have the floor kNoFloor, and a boundary that no such item
//     crosses separates runs.
//  4. valley(s), for s the first section of a run, says of that run: the section with the fewest
//  ways
//     to go on, or that there is none (a dead end), or that the run is no valley.
//  5. undo() restores all of this exactly.
//
// Cost: a change looks again at the runs that it touches and the items inside them; finding the
// section with the fewest choices is O(log sections). Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "memory/packing/bit_set.h"
#include "memory/packing/sections.h"

namespace headroom::memory {

struct Obstacle {
  uint32_t begin = 0;  // sections
  uint32_t end = 0;
  int64_t offset = 0;
  int64_t size = 0;
};

// Where to decide next.
struct Valley {
  static constexpr int32_t kDeadEnd = -1;
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

  int32_t choices = kNone;  // candidates, and one more where nothing may lie here
  int32_t candidates = 0;
  int64_t slack = 0;     // less what must be wasted: too little inside to reach the rim
  uint32_t section = 0;  // where
  uint32_t begin = 0;    // the run
  uint32_t end = 0;
  int64_t floor = 0;
  int64_t rim = 0;  // the lower of the two neighbours' floors; kNoFloor where there is none
};

class Skyline {
 public:
  static constexpr int64_t kNoFloor = std::numeric_limits<int64_t>::max() / 4;

  // Nothing is placed. REQUIRES: `sections` outlives this; obstacles do not overlap.
  Skyline(const Sections& sections, int64_t capacity, std::span<const Obstacle> obstacles = {});

  // Puts an item on the ground of the valley that it lies in.
  void place(uint32_t item);
  // Nothing will lie below `floor` in the sections [begin, end). REQUIRES: slack for it.
  void raise(uint32_t begin, uint32_t end, int64_t floor);
  // A state to come back to.
  [[nodiscard]] size_t moment() const { return actions_.size(); }
  void undo(size_t moment);

  // The valley with the fewest choices among the sections [begin, end), the one with the least
  // slack among equals. REQUIRES: no item that is left crosses the bounds.
  [[nodiscard]] const Valley& most_urgent(uint32_t begin, uint32_t end) const;
  // The sections around a valley's section that have no candidates, just as it has none.
  [[nodiscard]] std::pair<uint32_t, uint32_t> bare_sections(const Valley& valley);
  // Candidates for a valley's section, by their beginnings.
  void list_candidates(const Valley& valley, std::vector<uint32_t>& candidates) const;
  // The lowest height at which something could lie at the valley's section when nothing lies on its
  // ground: at the rim, on an item inside that does not live there, or at an obstacle.
  [[nodiscard]] int64_t next_height(const Valley& valley) const;
  // Whether something decided, and not a waste, lies right below at least one of the item's
  // sections: otherwise it could sink.
  [[nodiscard]] bool has_support(uint32_t item) const;

  [[nodiscard]] uint32_t left_at(uint32_t section) const { return left_[section]; }
  [[nodiscard]] bool is_boundary(uint32_t section) const { return crossing_[section] == 0; }
  [[nodiscard]] int64_t slack_at(uint32_t section) const { return slack_[section]; }
  [[nodiscard]] const std::vector<int64_t>& offsets() const { return offsets_; }
  // Of what is left to place in [begin, end) and of the floors there: states with equal
  // fingerprints are the same but for one case in 2^64.
  [[nodiscard]] uint64_t fingerprint(uint32_t begin, uint32_t end) const;

 private:
  class Inside;
  static constexpr uint32_t kNoItem = 0xffffffff;
  // The ground that an action covers was level; the rest of what was is in the logs.
  struct Action {
    uint32_t item;         // kNoItem for a raise
    uint32_t first, last;  // sections
    int64_t floor;         // before
    int64_t height;        // of a raise
  };

  void add_obstacles(std::span<const Obstacle> obstacles);
  // The bottom of the next obstacle above a section's floor.
  [[nodiscard]] int64_t ceiling(uint32_t section) const;
  // The same over all sections of an item on level ground: obstacles come in from the sides.
  [[nodiscard]] int64_t ceiling_over(const PackingItem& item) const {
    return std::min(ceiling(item.begin), ceiling(item.end - 1));
  }
  void climb_obstacles(uint32_t section);
  [[nodiscard]] bool has_obstacles() const { return !obstacles_begin_.empty(); }
  void log_ground(uint32_t begin, uint32_t end);
  void unlog_ground(uint32_t begin, uint32_t end);
  void link(uint32_t item);
  void unlink(uint32_t item);
  void rebuild_runs(uint32_t begin, uint32_t end);
  void judge_run(uint32_t begin, uint32_t end);
  [[nodiscard]] int64_t rim_of(uint32_t begin, uint32_t end) const;
  void set_leaf(uint32_t section);
  [[nodiscard]] bool is_more_urgent(uint32_t a, uint32_t b) const;

  const Sections& sections_;
  int64_t capacity_;
  std::vector<int64_t> floor_;
  std::vector<int64_t> slack_;
  std::vector<uint32_t> left_;      // items not placed, by section
  std::vector<uint32_t> crossing_;  // of them, those that live in the section before too
  std::vector<uint8_t> is_solid_;
  std::vector<int64_t> offsets_;
  std::vector<Obstacle> obstacles_;        // section by section, by offset
  std::vector<uint32_t> obstacles_begin_;  // by section, and the end; empty without obstacles
  std::vector<uint32_t> next_obstacle_;    // by section, into obstacles_
  // Items not placed, as a list by the section where they begin.
  std::vector<uint32_t> first_;
  std::vector<uint32_t> next_;
  std::vector<uint32_t> previous_;
  BitSet run_begins_;                 // sections: where valleys_ says something
  std::vector<Valley> valleys_;       // by the first section of a run; kNone elsewhere
  std::vector<uint32_t> tournament_;  // over valleys_: the most urgent below each node
  uint32_t leaves_ = 1;
  std::vector<uint8_t> solid_log_;      // what was, for undo(): section by section of each action
  std::vector<uint32_t> obstacle_log_;  // the same of next_obstacle_
  std::vector<Action> actions_;
  std::vector<int32_t> count_ending_;  // scratch of Inside, by section: 0 between uses
  std::vector<int64_t> size_ending_;
};

}  // namespace headroom::memory
