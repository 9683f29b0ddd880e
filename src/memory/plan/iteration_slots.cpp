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

std::vector<bool> persistent_requests(std::span<const RecordedRequest> requests,
                                      const Iterations& iterations) {
  const std::vector<Iteration>& whole = iterations.whole;
  int64_t end_of_time = 0;
  for (const RecordedRequest& request : requests) {
    end_of_time = std::max(end_of_time, request.upper);
  }
  std::vector<bool> is_persistent(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const RecordedRequest& request = requests[i];
    const auto next = std::lower_bound(
        whole.begin(), whole.end(), request.lower,
        [](const Iteration& iteration, int64_t time) { return iteration.lower < time; });
    is_persistent[i] = next != whole.end() ? request.upper >= next->upper
                                           : request.lower == 0 && request.upper == end_of_time;
  }
  return is_persistent;
}

SlotFinder::SlotFinder(std::span<const RecordedRequest> requests, const Iterations& iterations)
    : requests_(requests) {
  const std::vector<bool> is_persistent = persistent_requests(requests, iterations);
  const size_t second = iterations.whole.size() > 1 ? iterations.whole[1].begin : requests.size();
  std::vector<RecordedRequest> kept;
  for (uint32_t i = 0; i < requests.size(); ++i) {
    if (is_persistent[i] && i < second) continue;
    kept_.push_back(i);
    kept.push_back(requests[i]);
  }
  sequence_ = make_sequence(kept);
}

Stretch SlotFinder::stretch_of(const Iteration& iteration) const {
  const auto place = [&](size_t request) {
    const auto at = std::lower_bound(kept_.begin(), kept_.end(), request);
    return static_cast<size_t>(at - kept_.begin());
  };
  return {place(iteration.begin), place(iteration.end)};
}

IterationSlots SlotFinder::find(const Iterations& iterations, std::vector<uint32_t> chosen) const {
  IterationSlots all;
  all.iterations = std::move(chosen);
  const size_t count = all.iterations.size();
  const size_t middle = count / 2;
  const auto stretch = [&](size_t i) { return stretch_of(iterations.whole[all.iterations[i]]); };
  const Stretch pattern = stretch(middle);
  all.slots.resize(pattern.size());
  all.requests.assign(pattern.size() * count, kNoRequest);
  for (size_t i = 0; i < count; ++i) {
    // `align` finds a stretch in itself, too, request by request.
    for (const Match& match : align(sequence_, pattern, stretch(i))) {
      const uint32_t request = kept_[match.second];
      if (requests_[kept_[match.first]].stream != requests_[request].stream) continue;
      const size_t slot = match.first - pattern.begin;
      fill(all.slots[slot], requests_[request]);
      all.requests[slot * count + i] = request;
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
