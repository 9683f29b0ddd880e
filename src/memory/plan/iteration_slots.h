// Slots: the requests that iterations of one kind have in common, each with what it was in each of
// them.
//
// One iteration, the pattern, is compared with each of the others; a request of it that is found
// in nearly all is a slot. Slots keep the order of the pattern, so they are also the clock of an
// iteration: "after slot 17" means the same in each. What belongs to no slot is dynamic.
// O(requests of the iterations), expected; 8 bytes a slot and iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/plan/iterations.h"
#include "memory/plan/request_sequence.h"

namespace headroom::memory {

inline constexpr uint32_t kNoRequest = 0xffffffff;

struct Slot {
  int64_t stream = 0;
  int64_t smallest = 0;  // sizes that it had
  int64_t largest = 0;
  uint32_t times = 0;  // in so many of the iterations
};

struct IterationSlots {
  std::vector<uint32_t> iterations;  // into Iterations::whole
  std::vector<Slot> slots;           // in order
  // By slot, then iteration: the request that fills it, or kNoRequest.
  std::vector<uint32_t> requests;

  [[nodiscard]] uint32_t request(size_t slot, size_t iteration) const {
    return requests[slot * iterations.size() + iteration];
  }
  [[nodiscard]] bool is_same_in_all(size_t slot) const {
    return slots[slot].times == iterations.size() && slots[slot].smallest == slots[slot].largest;
  }
};

// By request: whether it is there for a whole iteration, or all the time. O(n log n).
[[nodiscard]] std::vector<bool> persistent_requests(std::span<const RecordedRequest> requests,
                                                    const Iterations& iterations);

// Comparing iterations of one recording again and again: the symbols are made once. What the first
// iteration makes and keeps is left out, as others do not make it (optimizer states); what each of
// them makes and keeps (a loss) is a slot like any other.
class SlotFinder {
 public:
  // REQUIRES: `requests` outlives the finder.
  SlotFinder(std::span<const RecordedRequest> requests, const Iterations& iterations);

  // The slots of these iterations. REQUIRES: they are of one kind; at least one.
  [[nodiscard]] IterationSlots find(const Iterations& iterations,
                                    std::vector<uint32_t> chosen) const;

 private:
  [[nodiscard]] Stretch stretch_of(const Iteration& iteration) const;

  std::span<const RecordedRequest> requests_;
  std::vector<uint32_t> kept_;  // requests, in order; the sequence is theirs
  RequestSequence sequence_;
};

}  // namespace headroom::memory
