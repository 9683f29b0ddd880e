#include "memory/plan/dynamic_space.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"

namespace headroom::memory {
namespace {

// The arena without what lives from `begins` to `ends`: by where slots lie, as guests lie in the
// arenas of others.
std::vector<AddressRange> idle_ranges(const SignaturePlan& signature, AddressRange arena,
                                      int64_t alignment, const DynamicReusableSpace& space) {
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (size_t i = 0; i < space.ends; ++i) {
    const PlannedSlot& slot = signature.slots[i];
    const bool is_here = slot.offset >= arena.offset && slot.offset < arena.offset + arena.size;
    if (!is_here || slot.is_carried || slot.is_elsewhere || slot.ends <= space.begins) continue;
    taken.emplace_back(slot.offset, slot.offset + round_up(slot.largest, alignment));
  }
  std::sort(taken.begin(), taken.end());
  std::vector<AddressRange> idle;
  int64_t at = arena.offset;
  for (const auto& [low, high] : taken) {
    if (low > at) idle.push_back({at, low - at});
    at = std::max(at, high);
  }
  const int64_t end = arena.offset + arena.size;
  if (end > at) idle.push_back({at, end - at});
  return idle;
}

using Place = std::tuple<uint32_t, uint32_t, uint32_t>;  // stream, before, rank
using Phase = std::tuple<uint32_t, uint32_t, uint32_t>;  // stream, begins, ends

// In steps of `width` slots, outwards.
Phase phase_of(const Place& place, uint32_t ends, uint32_t width, uint32_t slots) {
  const auto& [stream, before, rank] = place;
  const uint64_t rounded = (uint64_t{ends} + width - 1) / width * width;
  return {stream, before / width * width,
          static_cast<uint32_t>(std::min<uint64_t>(slots, rounded))};
}

}  // namespace

void make_dynamic_spaces(std::span<const DynamicSighting> sightings,
                         std::span<const AddressRange> arenas, int64_t alignment,
                         SignaturePlan& signature) {
  const auto slots = static_cast<uint32_t>(signature.slots.size());
  // The longest life at each place, over the iterations.
  std::map<Place, uint32_t> ends_at;
  for (const DynamicSighting& seen : sightings) {
    uint32_t& ends = ends_at[{seen.stream, seen.before, seen.rank}];
    ends = std::max(ends, seen.ends);
  }
  const uint64_t most_spaces =
      std::max<uint64_t>(1, kMostSpaceTests / kMostSignatures / (uint64_t{slots} + 1));
  std::map<Phase, uint32_t> spaces;
  uint32_t width = 1;
  for (;; width *= 2) {
    spaces.clear();
    for (const auto& [place, ends] : ends_at) spaces[phase_of(place, ends, width, slots)] = 0;
    if (spaces.size() <= most_spaces || width > slots) break;
  }
  for (auto& [phase, index] : spaces) {
    index = static_cast<uint32_t>(signature.spaces.size());
    const auto& [stream, begins, ends] = phase;
    DynamicReusableSpace space{stream, begins, ends, {}};
    space.idle = idle_ranges(signature, arenas[stream], alignment, space);
    signature.spaces.push_back(std::move(space));
  }
  for (const auto& [place, ends] : ends_at) {
    const auto& [stream, before, rank] = place;
    signature.places.push_back(
        {stream, before, rank, spaces.at(phase_of(place, ends, width, slots))});
  }
}

}  // namespace headroom::memory
