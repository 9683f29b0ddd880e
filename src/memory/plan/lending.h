// Lending: what of a stream's arena another stream may use while the first has nothing there.
//
// The sum of each stream's own peak is more than the peak of all where they are not highest at the
// same time. A slot of the stream with the largest arena may then be a *guest* in the arena of
// another: bytes there that the plan knows to be idle, for as long as the guest lives and some
// slots before and after. How many is what the recording shows: either how far behind the device
// was, or when the program itself had the one stream wait for the other (stream_order.h). Whether
// it is so again nobody can plan: whoever serves has to see, and needs other room for the guest
// where it is not (runtime/planned_arena.h).
//
// An arena changes hands in cells: columns of addresses, of which a slot may need several. So what
// is idle can be lent though its neighbour is not, and who owns what at run time is a matter of few
// cells.
//
// Pure. O(guests times slots) a call; at most kMostGuests further guests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/plan/memory_plan.h"

namespace headroom::memory {

inline constexpr size_t kMostCells = 64;  // of an arena
inline constexpr size_t kMostGuests = 256;

// The cells of an arena, by offset, without a gap: cut where one of `tenants`, which are the
// lender's own slots in all signatures, begins or ends, but for cuts that are near another one.
[[nodiscard]] std::vector<AddressRange> cells_of(std::span<const AddressRange> tenants,
                                                 AddressRange arena);

// Of cells by offset, those that hold any of [offset, offset + bytes): the first, and one past the
// last.
[[nodiscard]] std::pair<uint32_t, uint32_t> cells_over(std::span<const AddressRange> cells,
                                                       int64_t offset, int64_t bytes);

struct LendingSlot {
  // It begins at its own number, and its bytes may be another's of its own stream from `ends` on,
  // of the other stream only from `clear` on, which may be beyond the last: in the next iteration.
  uint32_t ends = 0;
  uint32_t clear = 0;  // at least `ends`
  int64_t bytes = 0;   // rounded up; 0: of a stream that has no part in this, or carried
  int64_t offset = 0;  // of the lender's, and of who is a guest there already: in its arena
  bool is_of_lender = false;
  bool is_guest = false;
  bool may_be_guest = false;
};
struct Guest {
  uint32_t slot = 0;
  int64_t offset = 0;  // in the lender's arena
};

// Slots of the lender, of which `offset` is not read, placed so that what it has while the
// borrower's load is high lies low: then more of its cells are idle together. First fit, by the
// highest load of the borrower in each one's life. Their offsets, in order (others': 0), and the
// bytes that this needs. O(n^2) in the lender's slots; nothing where there are over
// kMostPlacedLow.
struct PlacedLow {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};
inline constexpr size_t kMostPlacedLow = 4096;
[[nodiscard]] std::optional<PlacedLow> place_low(std::span<const LendingSlot> slots);

// Further guests that lower the borrower's highest load the most that was found. All slots of an
// iteration are given. What an iteration does the one before and after it do, too.
[[nodiscard]] std::vector<Guest> choose_guests(std::span<const LendingSlot> slots,
                                               std::span<const AddressRange> cells);

}  // namespace headroom::memory
