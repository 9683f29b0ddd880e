#include "memory/plan/iteration_slots.h"

#include <algorithm>
#include <utility>

namespace headroom::memory {
namespace {

// A slot may be missing in one of so many iterations.
constexpr size_t kOneMissingIn = 10;

void fill(Slot& slot, const RecordedRequest& request) {
  slot.stream = request.stream;
  slot.smallest = slot.times == 0 ? request.size : std::min(slot.smallest, request.size);
  slot.largest = std::max(slot.largest, request.size);
  ++slot.times;
}

}  // namespace

SlotFinder::SlotFinder(std::span<const RecordedRequest> requests)
    : requests_(requests), sequence_(make_sequence(requests)) {}

IterationSlots SlotFinder::find(const Iterations& iterations, std::vector<uint32_t> chosen) const {
  IterationSlots all;
  all.iterations = std::move(chosen);
  const size_t count = all.iterations.size();
  const size_t middle = count / 2;
  const auto stretch_of = [&](size_t i) {
    const Iteration& iteration = iterations.whole[all.iterations[i]];
    return Stretch{iteration.begin, iteration.end};
  };
  const Stretch pattern = stretch_of(middle);
  all.slots.resize(pattern.size());
  all.requests.assign(pattern.size() * count, kNoRequest);
  for (size_t i = 0; i < count; ++i) {
    // `align` finds a stretch in itself, too, request by request.
    for (const Match& match : align(sequence_, pattern, stretch_of(i))) {
      if (requests_[match.first].stream != requests_[match.second].stream) continue;
      const size_t slot = match.first - pattern.begin;
      fill(all.slots[slot], requests_[match.second]);
      all.requests[slot * count + i] = match.second;
    }
  }
  size_t kept = 0;
  for (size_t slot = 0; slot < all.slots.size(); ++slot) {
    if (all.slots[slot].times < count - count / kOneMissingIn) continue;
    all.slots[kept] = all.slots[slot];
    std::copy_n(all.requests.begin() + static_cast<std::ptrdiff_t>(slot * count), count,
                all.requests.begin() + static_cast<std::ptrdiff_t>(kept * count));
    ++kept;
  }
  all.slots.resize(kept);
  all.requests.resize(kept * count);
  return all;
}

}  // namespace headroom::memory
