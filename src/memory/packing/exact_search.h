// Exact search: a plan below a capacity, or the proof that there is none.
//
// Problem: the decision version of dynamic storage allocation, NP-complete. Depth first over
// skylines (skyline.h): take the valley's section with the fewest choices; put each of its
// candidates there in turn; last, where the section has slack, let nothing lie there up to the next
// height at which something could. Three things keep it small:
//  1. Sections without slack leave no choice but an exact cover, and the fewest choices come first.
//  2. Only plans in which nothing can sink are looked at: an item needs support in some section.
//  3. Once no item that is left crosses a boundary, its two sides are separate searches, and a side
//     that failed in a state is remembered with that state's fingerprint.
//
// Completeness: in a plan in which nothing can sink, either an item lies on the ground at the
// chosen section, and is a candidate, or the next one above it rests on something elsewhere: on a
// floor beyond the valley, at or above its rim, on an item inside the valley that does not live at
// the section, at least that item's size above the ground, or on an obstacle. The raise goes to the
// lowest of these and no further.
//
// Cost: a node costs a look at the items of the valley; nodes are exponential in the worst case,
// and as few as the items where the capacity is tight. The stack is explicit, so depth is bounded
// by memory alone. Deterministic for a seed.
//
// Source: that canonical plans suffice and that sections give the inference is from MiniMalloc
// (Moffitt, ASPLOS'23, sections 5.1 and 5.3), which orders its search by offset instead.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "memory/packing/effort.h"
#include "memory/packing/sections.h"
#include "memory/packing/skyline.h"

namespace headroom::memory {

enum class ExactOutcome : uint8_t { found, impossible, gave_up };

// In which order candidates are tried.
enum class CandidateOrder : uint8_t { length, area, size, exact_height };
inline constexpr size_t kCandidateOrderCount = 4;

struct ExactLimits {
  int64_t nodes = 0;
  CandidateOrder order = CandidateOrder::length;
  double noise = 0;  // 0 to 1: how far luck may change the order
  uint64_t seed = 0;
};

class ExactSearch {
 public:
  // REQUIRES: `sections` outlives the search; obstacles as the skyline wants them.
  ExactSearch(const Sections& sections, int64_t capacity, std::span<const Obstacle> obstacles = {});

  // Starts from nothing but what earlier calls proved. `gave_up` when nodes or effort are spent.
  ExactOutcome run(const ExactLimits& limits, Effort& effort);
  // By item, below the capacity. REQUIRES: the last run() found.
  [[nodiscard]] const std::vector<int64_t>& offsets() const { return skyline_.offsets(); }

 private:
  // One decision with its alternatives, or several separate searches that must all succeed.
  struct Frame {
    uint32_t begin, end;   // sections
    size_t before;         // the moment of the skyline before the frame
    size_t moment;         // after what was forced, where alternatives begin
    uint32_t first, last;  // its part of pool_: candidates, or bounds of separate searches
    uint32_t at;           // the next of them
    Valley valley;
    bool is_split;
  };
  enum class Step : uint8_t { enter, succeed, fail, give_up };

  Step enter(uint32_t begin, uint32_t end);
  Step enter_valley(uint32_t begin, uint32_t end);
  Step go_on(Step result);
  Step next_alternative(Frame& frame);
  Step leave(Step result);
  void rank_candidates(const Valley& valley);
  [[nodiscard]] double rank_of(uint32_t item, const Valley& valley);
  [[nodiscard]] bool has_twin_before(const Frame& frame, uint32_t at) const;
  bool raise_bare_ground(uint32_t begin, uint32_t end);
  bool raise(const Valley& valley);
  [[nodiscard]] bool is_known_failure(uint32_t begin, uint32_t end) const;
  void remember_failure(uint32_t begin, uint32_t end);

  const Sections& sections_;
  int64_t capacity_;
  Skyline skyline_;
  ExactLimits limits_;
  std::mt19937_64 random_;
  int64_t nodes_ = 0;
  Effort* effort_ = nullptr;
  std::vector<Frame> frames_;
  std::vector<uint32_t> pool_;
  std::vector<uint32_t> candidates_;                 // scratch
  std::vector<std::pair<double, uint32_t>> ranked_;  // scratch
  uint32_t enter_begin_ = 0;                         // what Step::enter enters
  uint32_t enter_end_ = 0;
  std::vector<uint64_t> failures_;  // fingerprints; a later one may replace an earlier one
  bool has_failures_ = false;
};

}  // namespace headroom::memory
