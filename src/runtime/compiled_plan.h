// CompiledPlan: a MemoryPlan as the serving side wants it, made by whoever has time (the planner's
// thread, or the one that opens a device).
//
// A plan cuts its range by stream, and blocks of two streams do not meet, so each stream is served
// alone, on a clock of its own: its slots, counted within the stream. Two slots of a stream overlap
// in time on that clock if and only if they do on the plan's. One Track a stream, one Sequence a
// signature in it.
//
// But for guests (memory/plan/lending.h): slots of one track in the range of another, which is cut
// into cells then. A guest is not served as others are, as somebody has to look at its cells.
//
// Plain values, never changed once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/plan/memory_plan.h"
#include "runtime/address_table.h"

namespace headroom::runtime {

inline constexpr size_t kGramRequests = 8;
// Offsets are kept in an AddressTable, which knows no 0: so much is added.
inline constexpr int64_t kPlaceShift = 512;

struct CompiledSlot {
  // As requested; -1 where it varies, of guests, of slots elsewhere, and in the sentinel at the
  // end.
  int64_t size = -1;
  int64_t offset = 0;
  int64_t room = 0;    // bytes, rounded up
  uint32_t place = 0;  // the number of its offset among all of the plan; kNoNumber: elsewhere
  uint32_t ends = 0;   // on the track's clock
};

struct CompiledSpace {
  uint32_t begins = 0;  // on the track's clock
  uint32_t ends = 0;
  std::vector<memory::AddressRange> idle;  // the largest, by offset
};

struct CompiledPlace {
  uint32_t before = 0;  // on the track's clock
  uint32_t rank = 0;
  uint32_t space = 0;
};

// What no slot uses for a stretch of so many slots, whatever the plan was made for: where requests
// that nobody foresaw go. Stretches of each length overlap by half, so that half of one lies ahead
// of every moment.
struct IdleScale {
  uint32_t step = 0;                  // stretch i begins at i * step and is 2 * step long
  std::vector<CompiledSpace> spaces;  // by stretch
};

struct SizeRange {
  int64_t smallest = 0;
  int64_t largest = 0;
};

struct Sequence {
  uint32_t count = 0;                  // slots, without the sentinel
  std::vector<CompiledSlot> slots;     // and a sentinel
  std::vector<SizeRange> sizes;        // by slot
  std::vector<uint32_t> ending_begin;  // by moment, 0 to count + 1: into `ending`
  std::vector<uint32_t> ending;        // the slots that end at each moment
  std::vector<CompiledSpace> spaces;
  std::vector<CompiledPlace> places;  // by before, then rank
  std::vector<IdleScale> idle;        // longest first
  // By slot: another track comes next in one of its cells, so it is released behind an event, but
  // in the program's order. Empty where nobody lends.
  std::vector<uint8_t> hands_over;
  // From the hash of kGramRequests sizes in a row, read round and round, to the slot of the last of
  // them; only where there is one such slot.
  std::unordered_map<uint64_t, uint32_t> grams;
};

struct Track {
  int64_t offset = 0;  // of what is served: carried and arena, behind the persistent bytes
  int64_t bytes = 0;
  std::vector<Sequence> sequences;  // by signature
  bool lends = false;               // its whole range is cut into cells
};

struct CompiledPlan {
  int64_t bytes = 0;  // of all tracks
  std::vector<Track> tracks;
  std::vector<memory::AddressRange> cells;  // of lenders, by offset; each changes hands as one
  std::vector<uint32_t> lenders;            // by cell: the track
  bool lends_in_order = false;              // guests come and go as the program's events have it
  uint32_t borrower = 0;                    // the track of the guests, where there are any
  uint32_t places = 0;
  AddressTable place_of;    // from offset + kPlaceShift to its number
  uint32_t longest = 0;     // slots of the longest sequence
  uint32_t main_track = 0;  // the one with it
  bool is_of_file = false;  // not of this run
};

// The hash of sizes in a row.
[[nodiscard]] inline uint64_t next_gram(uint64_t gram, int64_t size) {
  return (gram ^ static_cast<uint64_t>(size)) * 0x9e3779b97f4a7c15ULL;
}

// REQUIRES: check_plan(plan).
[[nodiscard]] CompiledPlan compile_plan(const memory::MemoryPlan& plan);

}  // namespace headroom::runtime
