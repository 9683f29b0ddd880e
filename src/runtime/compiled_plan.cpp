#include "runtime/compiled_plan.h"

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "memory/plan/lending.h"

namespace headroom::runtime {
namespace {

// More ranges than these of a space are not looked through for each request.
constexpr size_t kMostRanges = 64;

// Stretches of idle space: the shortest is of so many slots, each scale so many times as long.
constexpr uint32_t kLeastStep = 8;
constexpr uint32_t kScale = 4;
constexpr uint32_t kMostStretches = 1024;  // about; of the shortest

// The largest of them, by offset.
void keep_largest(std::vector<memory::AddressRange>& ranges) {
  if (ranges.size() <= kMostRanges) return;
  std::nth_element(ranges.begin(), ranges.begin() + kMostRanges, ranges.end(),
                   [](const auto& a, const auto& b) { return a.size > b.size; });
  ranges.resize(kMostRanges);
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
}

// The parts of [begin, end) in none of `busy`, which is sorted here.
std::vector<memory::AddressRange> gaps(std::vector<memory::AddressRange>& busy, int64_t begin,
                                       int64_t end) {
  std::sort(busy.begin(), busy.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  std::vector<memory::AddressRange> idle;
  int64_t at = begin;
  for (const memory::AddressRange& range : busy) {
    if (range.offset > at) idle.push_back({at, range.offset - at});
    at = std::max(at, range.offset + range.size);
  }
  if (end > at) idle.push_back({at, end - at});
  return idle;
}

// One signature in one stream.
class SequenceMaker {
 public:
  SequenceMaker(const memory::MemoryPlan& plan, uint32_t stream, CompiledPlan& compiled)
      : plan_(plan), stream_(stream), compiled_(compiled) {}

  Sequence make(const memory::SignaturePlan& signature) {
    // clock[i]: how many slots of this stream begin before slot i of the plan.
    clock_.assign(signature.slots.size() + 1, 0);
    for (size_t i = 0; i < signature.slots.size(); ++i) {
      clock_[i + 1] = clock_[i] + (signature.slots[i].stream == stream_ ? 1 : 0);
    }
    for (const memory::PlannedSlot& slot : signature.slots) {
      if (slot.stream == stream_) add(slot);
    }
    sequence_.count = static_cast<uint32_t>(sequence_.slots.size());
    sequence_.slots.emplace_back();
    sequence_.sizes.emplace_back();
    index_endings();
    index_grams();
    add_spaces(signature);
    // No more than some thousand stretches each, so that a long iteration's fit into memory.
    const uint32_t least = std::max(kLeastStep, sequence_.count / kMostStretches);
    for (uint32_t step = least; step / kScale < sequence_.count; step *= kScale) {
      sequence_.idle.insert(sequence_.idle.begin(), idle_scale(step));
    }
    return std::move(sequence_);
  }

 private:
  void add(const memory::PlannedSlot& slot) {
    sequence_.sizes.push_back({slot.smallest, slot.largest});
    if (slot.is_elsewhere) {
      sequence_.slots.push_back({-1, 0, 0, kNoNumber, clock_[slot.ends]});
      return;
    }
    const int64_t key = slot.offset + kPlaceShift;
    uint32_t place = compiled_.place_of.find(key);
    if (place == kNoNumber) {
      place = compiled_.places++;
      compiled_.place_of.insert(key, place);
    }
    const bool is_plain = slot.smallest == slot.largest && !slot.is_guest;
    sequence_.slots.push_back({is_plain ? slot.largest : -1, slot.offset,
                               round_up(slot.largest, plan_.alignment), place, clock_[slot.ends]});
  }

  void index_endings() {
    std::vector<uint32_t>& begin = sequence_.ending_begin;
    begin.assign(sequence_.count + 2, 0);
    for (uint32_t i = 0; i < sequence_.count; ++i) ++begin[sequence_.slots[i].ends + 1];
    for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
    sequence_.ending.resize(sequence_.count);
    std::vector<uint32_t> next = begin;
    for (uint32_t i = 0; i < sequence_.count; ++i) {
      sequence_.ending[next[sequence_.slots[i].ends]++] = i;
    }
  }

  void index_grams() {
    if (sequence_.count == 0) return;
    std::unordered_map<uint64_t, uint32_t> times;
    for (uint32_t last = 0; last < sequence_.count; ++last) {
      uint64_t gram = 0;
      bool varies = false;
      for (size_t i = 0; i < kGramRequests; ++i) {
        const auto back = static_cast<uint32_t>((kGramRequests - 1 - i) % sequence_.count);
        const SizeRange& sizes = sequence_.sizes[(last + sequence_.count - back) % sequence_.count];
        varies = varies || sizes.smallest != sizes.largest;
        gram = next_gram(gram, sizes.largest);
      }
      if (varies) continue;
      ++times[gram];
      sequence_.grams[gram] = last;
    }
    std::erase_if(sequence_.grams, [&](const auto& entry) { return times[entry.first] > 1; });
  }

  void add_spaces(const memory::SignaturePlan& signature) {
    std::vector<uint32_t> number(signature.spaces.size(), kNoNumber);
    for (size_t i = 0; i < signature.spaces.size(); ++i) {
      const memory::DynamicReusableSpace& space = signature.spaces[i];
      if (space.stream != stream_) continue;
      CompiledSpace made;
      made.begins = clock_[space.begins];
      made.ends = clock_[space.ends];
      made.idle = space.idle;
      keep_largest(made.idle);
      number[i] = static_cast<uint32_t>(sequence_.spaces.size());
      sequence_.spaces.push_back(std::move(made));
    }
    for (const memory::DynamicPlace& place : signature.places) {
      if (place.stream != stream_ || number[place.space] == kNoNumber) continue;
      const uint32_t before = clock_[place.before];
      uint32_t rank = 0;
      if (!sequence_.places.empty() && sequence_.places.back().before == before) {
        rank = sequence_.places.back().rank + 1;
      }
      sequence_.places.push_back({before, rank, number[place.space]});
    }
  }

  // Each slot is put to the stretches that it lives in: O(slots times their stretches), and a slot
  // that lives in all of them is in few of the long ones.
  IdleScale idle_scale(uint32_t step) const {
    IdleScale scale;
    scale.step = step;
    const uint32_t stretches = sequence_.count / step + 1;
    const memory::PlannedStream& part = plan_.streams[stream_];
    const int64_t arena = part.range.offset + part.persistent_bytes + part.carried_bytes;
    const int64_t arena_end = part.range.offset + part.range.size;
    // Those that live from before: kept from one stretch to the next.
    std::vector<uint32_t> living;
    uint32_t next = 0;
    for (uint32_t i = 0; i < stretches; ++i) {
      const uint32_t begins = i * step;
      const uint32_t ends = begins + 2 * step;
      // A slot that ends at `begins` may still be there a moment before: end_until() sees to it.
      std::erase_if(living, [&](uint32_t slot) { return sequence_.slots[slot].ends <= begins; });
      for (; next < sequence_.count && next < ends; ++next) {
        const int64_t offset = sequence_.slots[next].offset;
        const bool has_bytes = sequence_.slots[next].place != kNoNumber;
        if (has_bytes && offset >= arena && offset < arena_end)
          living.push_back(next);  // no guest elsewhere
      }
      std::vector<memory::AddressRange> busy;
      for (const uint32_t slot : living) {
        busy.push_back({sequence_.slots[slot].offset, sequence_.slots[slot].room});
      }
      CompiledSpace space;
      space.begins = begins;
      space.ends = ends;
      space.idle = gaps(busy, arena, arena_end);
      keep_largest(space.idle);
      scale.spaces.push_back(std::move(space));
    }
    return scale;
  }

  const memory::MemoryPlan& plan_;
  uint32_t stream_;
  CompiledPlan& compiled_;
  Sequence sequence_;
  std::vector<uint32_t> clock_;
};

// Who has slots in a cell, in one signature, in the order in which they begin.
struct Tenant {
  uint32_t begins = 0;  // on the plan's clock, as
  uint32_t ends = 0;
  uint32_t track = 0;
  uint32_t slot = 0;  // of its track
};

// Behind whom another track comes next: the last of each track's before one of another begins,
// round and round, and who is still there when that last one begins.
void mark_hand_overs(const std::vector<Tenant>& tenants, size_t signature, CompiledPlan& compiled) {
  for (size_t i = 0; i < tenants.size(); ++i) {
    const Tenant& last = tenants[i];
    if (tenants[(i + 1) % tenants.size()].track == last.track) continue;
    for (size_t j = 0; j <= i; ++j) {
      const Tenant& one = tenants[j];
      if (one.track != last.track || (j < i && one.ends <= last.begins)) continue;
      compiled.tracks[one.track].sequences[signature].hands_over[one.slot] = 1;
    }
  }
}

// Cuts the ranges in which guests lie into cells.
void add_cells(const memory::MemoryPlan& plan, CompiledPlan& compiled) {
  for (const memory::SignaturePlan& signature : plan.signatures) {
    for (const memory::PlannedSlot& slot : signature.slots) {
      if (!slot.is_guest) continue;
      compiled.tracks[memory::host_of(plan, slot)].lends = true;
      compiled.borrower = slot.stream;
      compiled.lends_in_order = compiled.lends_in_order || slot.is_in_order;
    }
  }
  for (uint32_t i = 0; i < compiled.tracks.size(); ++i) {
    const Track& track = compiled.tracks[i];
    if (!track.lends) continue;
    std::vector<memory::AddressRange> tenants;
    for (const memory::SignaturePlan& signature : plan.signatures) {
      for (const memory::PlannedSlot& slot : signature.slots) {
        if (slot.stream != i || slot.is_guest || slot.is_elsewhere || slot.is_carried) continue;
        tenants.push_back({slot.offset, round_up(slot.largest, plan.alignment)});
      }
    }
    const int64_t carried = plan.streams[i].carried_bytes;  // nobody else's
    std::vector<memory::AddressRange> cells =
        memory::cells_of(tenants, {track.offset + carried, track.bytes - carried});
    if (carried > 0) cells.insert(cells.begin(), {track.offset, carried});
    for (const memory::AddressRange& cell : cells) {
      compiled.cells.push_back(cell);
      compiled.lenders.push_back(i);
    }
  }
}

void mark_hand_overs(const memory::MemoryPlan& plan, CompiledPlan& compiled) {
  for (size_t s = 0; s < plan.signatures.size(); ++s) {
    for (Track& track : compiled.tracks) {
      track.sequences[s].hands_over.assign(track.sequences[s].count, 0);
    }
    std::vector<std::vector<Tenant>> tenants(compiled.cells.size());
    std::vector<uint32_t> next(compiled.tracks.size());
    const auto& slots = plan.signatures[s].slots;
    for (uint32_t i = 0; i < slots.size(); ++i) {
      const Tenant tenant{i, slots[i].ends, slots[i].stream, next[slots[i].stream]++};
      if (slots[i].is_elsewhere) continue;
      const auto [first, last] = memory::cells_over(compiled.cells, slots[i].offset,
                                                    round_up(slots[i].largest, plan.alignment));
      for (uint32_t cell = first; cell < last; ++cell) tenants[cell].push_back(tenant);
    }
    for (const std::vector<Tenant>& of_cell : tenants) mark_hand_overs(of_cell, s, compiled);
  }
}

}  // namespace

CompiledPlan compile_plan(const memory::MemoryPlan& plan) {
  CompiledPlan compiled;
  for (uint32_t stream = 0; stream < plan.streams.size(); ++stream) {
    const memory::PlannedStream& part = plan.streams[stream];
    Track track;
    track.offset = part.range.offset + part.persistent_bytes;
    track.bytes = part.range.size - part.persistent_bytes;
    for (const memory::SignaturePlan& signature : plan.signatures) {
      track.sequences.push_back(SequenceMaker(plan, stream, compiled).make(signature));
      if (track.sequences.back().count > compiled.longest) {
        compiled.longest = track.sequences.back().count;
        compiled.main_track = stream;
      }
    }
    compiled.bytes += track.bytes;
    compiled.tracks.push_back(std::move(track));
  }
  add_cells(plan, compiled);
  if (!compiled.cells.empty()) mark_hand_overs(plan, compiled);
  return compiled;
}

}  // namespace headroom::runtime
