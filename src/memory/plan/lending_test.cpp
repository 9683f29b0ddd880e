#include "memory/plan/lending.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace headroom::memory {
namespace {

TEST(Lending, CellsAreCutWhereTenantsBeginAndEnd) {
  const std::vector<AddressRange> tenants{{100, 50}, {0, 60}, {61, 39}, {120, 60}, {50, 20}};
  const auto cells = cells_of(tenants, {0, 200});
  // 61 is too near to 60.
  const std::vector<AddressRange> expected = {{0, 50},   {50, 10},  {60, 10},  {70, 30},
                                              {100, 20}, {120, 30}, {150, 30}, {180, 20}};
  EXPECT_EQ(cells, expected);
  EXPECT_TRUE(cells_of({}, {0, 0}).empty());
  EXPECT_EQ(cells_of({}, {512, 100}).size(), 1u);
}

TEST(Lending, ThereAreNoMoreCellsThanMayBe) {
  std::vector<AddressRange> tenants;
  for (int64_t i = 0; i < 1000; ++i) tenants.push_back({i * 10, 10});
  const auto cells = cells_of(tenants, {0, 10'000});
  EXPECT_LE(cells.size(), kMostCells);
  EXPECT_GT(cells.size(), kMostCells / 2);
  int64_t at = 0;
  for (const AddressRange& cell : cells) {
    EXPECT_EQ(cell.offset, at);
    at += cell.size;
  }
  EXPECT_EQ(at, 10'000);
}

struct Drawn {
  std::vector<LendingSlot> slots;
  std::vector<AddressRange> cells;
};

// The lender is busy in a stretch of its own, the borrower all the time.
Drawn drawn(std::mt19937_64& random) {
  Drawn made;
  const uint32_t count = 20 + static_cast<uint32_t>(random() % 100);
  const uint32_t begins = static_cast<uint32_t>(random() % (count / 2));
  const uint32_t ends = begins + 1 + static_cast<uint32_t>(random() % (count / 2));
  std::vector<AddressRange> tenants;
  for (uint32_t i = 0; i < count; ++i) {
    LendingSlot slot;
    slot.ends = i + 1 + static_cast<uint32_t>(random() % std::min<uint64_t>(count - i, 30));
    slot.clear = slot.ends + static_cast<uint32_t>(random() % (random() % 8 == 0 ? count : 6));
    slot.bytes = 1 + static_cast<int64_t>(random() % 50);
    slot.is_of_lender = i >= begins && i < ends && random() % 3 == 0;
    slot.may_be_guest = !slot.is_of_lender && random() % 5 != 0;
    if (slot.is_of_lender) {
      slot.offset = 64 * static_cast<int64_t>(tenants.size() % 8);
      tenants.push_back({slot.offset, slot.bytes});
    }
    made.slots.push_back(slot);
  }
  made.cells = cells_of(tenants, {0, 512});
  return made;
}

int64_t highest_load(const std::vector<LendingSlot>& slots, const std::vector<Guest>& guests) {
  std::vector<int64_t> load(slots.size());
  for (uint32_t i = 0; i < slots.size(); ++i) {
    const bool is_away = std::any_of(guests.begin(), guests.end(),
                                     [&](const Guest& guest) { return guest.slot == i; });
    if (slots[i].is_of_lender || is_away) continue;
    for (uint32_t t = i; t < slots[i].ends; ++t) load[t] += slots[i].bytes;
  }
  return *std::max_element(load.begin(), load.end());
}

// Does one of them begin before the other one's bytes are clear, round and round?
bool come_near(uint32_t a, uint32_t a_clear, uint32_t b, uint32_t b_clear, uint32_t count) {
  for (const int64_t round : {-2, -1, 0, 1, 2}) {
    const int64_t shift = round * static_cast<int64_t>(count);
    if (a < b_clear + shift && b + shift < a_clear) return true;
  }
  return false;
}

TEST(Lending, GuestsKeepApartFromEverybody) {
  std::mt19937_64 random(3);
  size_t guests_seen = 0;
  for (int round = 0; round < 500; ++round) {
    const Drawn what = drawn(random);
    const auto count = static_cast<uint32_t>(what.slots.size());
    const std::vector<Guest> guests = choose_guests(what.slots, what.cells);
    guests_seen += guests.size();
    if (!guests.empty()) {
      EXPECT_LT(highest_load(what.slots, guests), highest_load(what.slots, {})) << round;
    }
    const auto share = [](int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
      return a < b + b_bytes && b < a + a_bytes;
    };
    for (const Guest& guest : guests) {
      const LendingSlot& slot = what.slots[guest.slot];
      ASSERT_TRUE(slot.may_be_guest && guest.offset >= 0 && guest.offset + slot.bytes <= 512);
      for (const Guest& other : guests) {
        const LendingSlot& its = what.slots[other.slot];
        const bool together = other.slot < slot.ends && guest.slot < its.ends;
        const bool shares = share(guest.offset, slot.bytes, other.offset, its.bytes);
        ASSERT_TRUE(guest.slot == other.slot || !together || !shares) << round;
      }
      for (uint32_t i = 0; i < count; ++i) {
        const LendingSlot& lenders = what.slots[i];
        if (!lenders.is_of_lender) continue;
        for (const AddressRange& cell : what.cells) {
          const bool meet = share(cell.offset, cell.size, guest.offset, slot.bytes) &&
                            share(cell.offset, cell.size, lenders.offset, lenders.bytes);
          ASSERT_FALSE(meet && come_near(guest.slot, slot.clear, i, lenders.clear, count)) << round;
        }
      }
    }
  }
  EXPECT_GT(guests_seen, 500u);
}

TEST(Lending, NobodyIsAGuestWhereNothingIsIdle) {
  std::vector<LendingSlot> slots(10);
  for (uint32_t i = 0; i < slots.size(); ++i) slots[i] = {i + 1, i + 1, 10, 0, false, false, true};
  slots[0] = {10, 10, 100, 0, true, false, false};
  EXPECT_TRUE(choose_guests(slots, std::vector<AddressRange>{{0, 100}}).empty());
  EXPECT_TRUE(choose_guests({}, {}).empty());
}

}  // namespace
}  // namespace headroom::memory
