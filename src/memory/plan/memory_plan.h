// MemoryPlan: where the requests of an iteration go, and what of that is known to be idle when.
//
// The clock of an iteration is its slots: slot i begins at i, and is released before slot `ends`
// begins. The address range is cut by stream, as nothing is known of when streams wait for each
// other; a stream's part holds, from below, what is persistent, what is carried over the end of an
// iteration, and an arena that all signatures use in turn. A plan may place slots of one stream in
// another's arena where that is idle; who serves it has to see that the device is done there:
//
//   stream 0                                   stream 1
//   [persistent | carried | arena            ] [persistent | carried | arena ] ...
//
// One signature a kind of iteration (a shape bucket, training, evaluation). Plain values; made by
// plan_maker.h, judged by plan_checker.h, kept in files by plan_file.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace headroom::memory {

struct AddressRange {
  int64_t offset = 0;  // from the beginning of the plan's range, as all offsets here
  int64_t size = 0;
  bool operator==(const AddressRange&) const = default;
};

struct PlannedSlot {
  uint32_t stream = 0;   // into MemoryPlan::streams
  uint32_t ends = 0;     // above its own number; the number of slots: at the iteration's end
  int64_t smallest = 0;  // the sizes it had, as requested; room is there for the largest
  int64_t largest = 0;
  int64_t offset = 0;
  // Released only after the iteration has ended: its bytes are its own in every signature.
  bool is_carried = false;
  // Its bytes lie in another stream's arena, which is idle there while it lives (lending.h).
  bool is_guest = false;
  // Of a guest: the program itself has it come after what was there, and before what comes
  // (stream_order.h), so that nobody needs to look at the device.
  bool is_in_order = false;
  // It has no bytes here (offset 0, ends right after its number): it lives on while the next
  // iteration's is there, or for good. It stands in its turn, so that what is as large finds its
  // own.
  bool is_elsewhere = false;
  bool operator==(const PlannedSlot&) const = default;
};

// The addresses that no slot uses between the moments at which slots `begins` and `ends` begin:
// what requests without a slot that live no longer may have. STAlloc (arXiv 2507.16274), 5.3.
struct DynamicReusableSpace {
  uint32_t stream = 0;
  uint32_t begins = 0;
  uint32_t ends = 0;
  std::vector<AddressRange> idle;  // by offset, apart from each other
  bool operator==(const DynamicReusableSpace&) const = default;
};

// Where requests without a slot were seen: the `rank`-th of them, from 0, since slot `before` - 1
// began, and the space for as long as it lived.
struct DynamicPlace {
  uint32_t stream = 0;
  uint32_t before = 0;
  uint32_t rank = 0;
  uint32_t space = 0;  // into SignaturePlan::spaces
  bool operator==(const DynamicPlace&) const = default;
};

struct SignaturePlan {
  uint32_t iterations = 0;  // it was made from
  std::vector<PlannedSlot> slots;
  std::vector<DynamicReusableSpace> spaces;
  std::vector<DynamicPlace> places;  // by stream, before, rank
  bool operator==(const SignaturePlan&) const = default;
};

struct PlannedStream {
  AddressRange range;
  int64_t persistent_bytes = 0;  // at its beginning
  int64_t carried_bytes = 0;     // after those
  bool operator==(const PlannedStream&) const = default;
};

struct PersistentBlock {
  uint32_t stream = 0;
  int64_t size = 0;
  int64_t offset = 0;
  bool operator==(const PersistentBlock&) const = default;
};

struct MemoryPlan {
  int64_t alignment = 1;
  int64_t bytes = 0;  // of the whole range
  std::vector<PlannedStream> streams;
  std::vector<PersistentBlock> persistent;  // in the order in which they were asked for
  std::vector<SignaturePlan> signatures;
  bool operator==(const MemoryPlan&) const = default;
};

inline constexpr uint32_t kMostStreams = 1024;
inline constexpr uint32_t kMostSignatures = 64;
// Spaces times slots of one plan: testing one against the other is then a matter of seconds.
inline constexpr uint64_t kMostSpaceTests = uint64_t{1} << 30;

// The stream in whose part of the range the slot lies. REQUIRES: a guest lies in one.
[[nodiscard]] inline uint32_t host_of(const MemoryPlan& plan, const PlannedSlot& slot) {
  if (!slot.is_guest) return slot.stream;
  const auto after = std::upper_bound(
      plan.streams.begin(), plan.streams.end(), slot.offset,
      [](int64_t offset, const PlannedStream& stream) { return offset < stream.range.offset; });
  return static_cast<uint32_t>(after - plan.streams.begin()) - 1;
}

}  // namespace headroom::memory
