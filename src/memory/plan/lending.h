// Lending: what of a stream's arena another stream may use while the first has nothing there.
//
// The sum of each stream's own peak is more than the peak of all where they are not highest at the
// same time. A slot of the stream with the largest arena may then be a *guest* in the arena of
// another: bytes there that the plan knows to be idle, for as long as the guest lives and some
// slots before and after. Whether the device is done with them, too, nobody can plan: whoever
// serves has to see, and needs other room for the guest where it is not (runtime/planned_arena.h).
//
// An arena changes hands in cells: columns of addresses that no slot of the lender reaches across.
// So what is idle early can be lent early, and who owns what at run time is a matter of few cells.
//
// Pure. O(guests times slots); at most kMostGuests guests a signature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "memory/plan/memory_plan.h"

namespace headroom::memory {

inline constexpr size_t kMostCells = 64;  // of an arena
inline constexpr size_t kMostGuests = 256;

// The cells of an arena, by offset, without a gap: cut where none of `tenants`, which are the
// lender's own slots in all signatures, reaches across.
[[nodiscard]] std::vector<AddressRange> cells_of(std::vector<AddressRange> tenants,
                                                 AddressRange arena);

// Of cells by offset, those that hold any of [offset, offset + bytes): the first, and one past the
// last.
[[nodiscard]] std::pair<uint32_t, uint32_t> cells_over(std::span<const AddressRange> cells,
                                                       int64_t offset, int64_t bytes);

struct LendingSlot {
  // It begins at its own number. Of the lender's: with the slots behind it in which the device may
  // still be at work; then it may be beyond the last.
  uint32_t ends = 0;
  int64_t bytes = 0;   // rounded up; 0: of a stream that has no part in this, or carried
  int64_t offset = 0;  // of the lender's: in its arena
  bool is_of_lender = false;
  bool may_be_guest = false;
};
struct Guest {
  uint32_t slot = 0;
  int64_t offset = 0;  // in the lender's arena
};

// Guests that lower the borrower's highest load the most that was found. All slots of an iteration
// are given; `gap`: so many slots lie between a guest's end and what the lender has in the same
// cell. What an iteration does the one before and after it do, too.
[[nodiscard]] std::vector<Guest> choose_guests(std::span<const LendingSlot> slots,
                                               std::span<const AddressRange> cells, uint32_t gap);

}  // namespace headroom::memory
