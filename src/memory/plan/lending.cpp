#include "memory/plan/lending.h"

#include <algorithm>
#include <array>
#include <utility>

namespace headroom::memory {
namespace {

struct Stretch {
  uint32_t begins = 0;
  uint32_t ends = 0;
};

bool meet(const Stretch& a, const Stretch& b) { return a.begins < b.ends && b.begins < a.ends; }

// Of the borrower, at each moment, without guests.
std::vector<int64_t> loads_of_borrower(std::span<const LendingSlot> slots) {
  std::vector<int64_t> load(slots.size());
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (slots[i].is_of_lender || slots[i].is_guest) continue;
    for (uint32_t at = i; at < slots[i].ends; ++at) load[at] += slots[i].bytes;
  }
  return load;
}

// Sorted, and joined where they touch.
void join(std::vector<Stretch>& stretches) {
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.begins < b.begins; });
  size_t last = 0;
  for (size_t i = 1; i < stretches.size(); ++i) {
    if (stretches[i].begins <= stretches[last].ends) {
      stretches[last].ends = std::max(stretches[last].ends, stretches[i].ends);
    } else {
      stretches[++last] = stretches[i];
    }
  }
  if (!stretches.empty()) stretches.resize(last + 1);
}

class GuestChooser {
 public:
  GuestChooser(std::span<const LendingSlot> slots, std::span<const AddressRange> cells)
      : slots_(slots), cells_(cells), busy_(cells.size()), load_(loads_of_borrower(slots)) {
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].bytes > 0 && slots_[i].is_of_lender) add_busy(i);
      if (slots_[i].bytes > 0 && slots_[i].is_guest) guests_.push_back({i, slots_[i].offset});
    }
    already_ = guests_.size();
    for (std::vector<Stretch>& stretches : busy_) join(stretches);
  }

  // `by_bytes`: the largest of what lives at the highest load first; else what lives longest.
  std::vector<Guest> choose(bool by_bytes) {
    std::vector<bool> is_tried(slots_.size());
    int64_t highest = highest_load();
    while (guests_.size() < already_ + kMostGuests) {
      const auto top = std::max_element(load_.begin(), load_.end());
      highest = std::min(highest, *top);
      if (!add_guest(static_cast<uint32_t>(top - load_.begin()), by_bytes, is_tried)) break;
    }
    send_home(std::min(highest, highest_load()));
    return {guests_.begin() + static_cast<std::ptrdiff_t>(already_), guests_.end()};
  }
  [[nodiscard]] int64_t highest_load() const {
    return *std::max_element(load_.begin(), load_.end());
  }

 private:
  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(slots_.size()); }
  [[nodiscard]] Stretch life(uint32_t slot) const { return {slot, slots_[slot].ends}; }

  // Until the other stream may have its bytes. The iterations before and after are like this one,
  // so what reaches beyond its end is there at its beginning.
  [[nodiscard]] std::array<Stretch, 2> round_and_round(uint32_t slot) const {
    const uint32_t clear = slots_[slot].clear;
    const uint32_t beyond = clear - std::min(clear, count());
    return {Stretch{slot, std::min(clear, count())}, Stretch{0, std::min(beyond, count())}};
  }

  void change_load(uint32_t slot, int64_t bytes) {
    for (uint32_t i = slot; i < slots_[slot].ends; ++i) load_[i] += bytes;
  }

  void add_busy(uint32_t slot) {
    const LendingSlot& what = slots_[slot];
    const auto [first, last] = cells_over(cells_, what.offset, what.bytes);
    for (uint32_t cell = first; cell < last; ++cell) {
      for (const Stretch& part : round_and_round(slot)) {
        if (part.begins < part.ends) busy_[cell].push_back(part);
      }
    }
  }

  bool add_guest(uint32_t moment, bool by_bytes, std::vector<bool>& is_tried) {
    std::vector<uint32_t> living;
    for (uint32_t i = 0; i <= moment; ++i) {
      const LendingSlot& slot = slots_[i];
      if (slot.may_be_guest && slot.bytes > 0 && slot.ends > moment && !is_tried[i]) {
        living.push_back(i);
      }
    }
    std::stable_sort(living.begin(), living.end(), [&](uint32_t a, uint32_t b) {
      if (by_bytes) return slots_[a].bytes > slots_[b].bytes;
      return slots_[a].ends - a > slots_[b].ends - b;
    });
    for (const uint32_t slot : living) {
      is_tried[slot] = true;
      const int64_t offset = room_for(slot);
      if (offset < 0) continue;
      guests_.push_back({slot, offset});
      change_load(slot, -slots_[slot].bytes);
      return true;
    }
    return false;
  }

  // Who would not raise the highest load at home, the last that came first.
  void send_home(int64_t highest) {
    for (size_t i = guests_.size(); i-- > already_;) {
      const uint32_t slot = guests_[i].slot;
      const int64_t most =
          *std::max_element(load_.begin() + slot, load_.begin() + slots_[slot].ends);
      if (most + slots_[slot].bytes > highest) continue;
      change_load(slot, slots_[slot].bytes);
      guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  [[nodiscard]] bool is_busy(size_t cell, const Stretch& part) const {
    const std::vector<Stretch>& busy = busy_[cell];
    const auto after = std::partition_point(
        busy.begin(), busy.end(), [&](const Stretch& one) { return one.ends <= part.begins; });
    return after != busy.end() && meet(*after, part);
  }

  // The lowest offset at which nobody is while it lives; -1 where there is none.
  [[nodiscard]] int64_t room_for(uint32_t slot) const {
    std::vector<AddressRange> taken;
    for (size_t i = 0; i < cells_.size(); ++i) {
      const auto parts = round_and_round(slot);
      const auto is_busy_in = [&](const Stretch& part) { return is_busy(i, part); };
      if (std::any_of(parts.begin(), parts.end(), is_busy_in)) taken.push_back(cells_[i]);
    }
    for (const Guest& guest : guests_) {
      if (meet(life(guest.slot), life(slot)))
        taken.push_back({guest.offset, slots_[guest.slot].bytes});
    }
    std::sort(taken.begin(), taken.end(),
              [](const AddressRange& a, const AddressRange& b) { return a.offset < b.offset; });
    int64_t at = cells_.front().offset;
    for (const AddressRange& range : taken) {
      if (range.offset - at >= slots_[slot].bytes) return at;
      at = std::max(at, range.offset + range.size);
    }
    const int64_t end = cells_.back().offset + cells_.back().size;
    return end - at >= slots_[slot].bytes ? at : -1;
  }

  std::span<const LendingSlot> slots_;
  std::span<const AddressRange> cells_;
  std::vector<std::vector<Stretch>> busy_;  // by cell: when it is the lender's
  std::vector<int64_t> load_;               // of the borrower, at each moment, without guests
  std::vector<Guest> guests_;
  size_t already_ = 0;  // of them, from the beginning
};

}  // namespace

std::vector<AddressRange> cells_of(std::span<const AddressRange> tenants, AddressRange arena) {
  std::vector<int64_t> bounds;
  for (const AddressRange& tenant : tenants) {
    bounds.push_back(tenant.offset);
    bounds.push_back(tenant.offset + tenant.size);
  }
  std::sort(bounds.begin(), bounds.end());
  const int64_t least = arena.size / static_cast<int64_t>(kMostCells) + 1;
  const int64_t end = arena.offset + arena.size;
  std::vector<AddressRange> cells;
  int64_t begin = arena.offset;
  for (const int64_t bound : bounds) {
    if (bound - begin < least || bound >= end) continue;
    cells.push_back({begin, bound - begin});
    begin = bound;
  }
  if (end > begin) cells.push_back({begin, end - begin});
  return cells;
}

std::pair<uint32_t, uint32_t> cells_over(std::span<const AddressRange> cells, int64_t offset,
                                         int64_t bytes) {
  const auto first = std::partition_point(
      cells.begin(), cells.end(),
      [&](const AddressRange& cell) { return cell.offset + cell.size <= offset; });
  const auto last = std::partition_point(
      first, cells.end(), [&](const AddressRange& cell) { return cell.offset < offset + bytes; });
  return {static_cast<uint32_t>(first - cells.begin()),
          static_cast<uint32_t>(last - cells.begin())};
}

std::optional<PlacedLow> place_low(std::span<const LendingSlot> slots) {
  const std::vector<int64_t> load = loads_of_borrower(slots);
  struct Lenders {
    uint32_t slot = 0;
    int64_t load = 0;  // the borrower's highest while it lives
  };
  std::vector<Lenders> order;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].is_of_lender || slots[i].bytes == 0) continue;
    order.push_back({i, *std::max_element(load.begin() + i, load.begin() + slots[i].ends)});
  }
  if (order.size() > kMostPlacedLow) return std::nullopt;
  std::stable_sort(order.begin(), order.end(), [&](const Lenders& a, const Lenders& b) {
    return a.load != b.load ? a.load > b.load : slots[a.slot].bytes > slots[b.slot].bytes;
  });
  PlacedLow placed{std::vector<int64_t>(slots.size()), 0};
  std::vector<uint32_t> by_offset;  // those that are placed
  for (const Lenders& one : order) {
    const LendingSlot& slot = slots[one.slot];
    int64_t at = 0;
    for (const uint32_t other : by_offset) {
      if (!meet({other, slots[other].ends}, {one.slot, slot.ends})) continue;
      if (placed.offsets[other] - at >= slot.bytes) break;
      at = std::max(at, placed.offsets[other] + slots[other].bytes);
    }
    placed.offsets[one.slot] = at;
    placed.bytes = std::max(placed.bytes, at + slot.bytes);
    const auto before =
        std::partition_point(by_offset.begin(), by_offset.end(),
                             [&](uint32_t other) { return placed.offsets[other] <= at; });
    by_offset.insert(before, one.slot);
  }
  return placed;
}

std::vector<Guest> choose_guests(std::span<const LendingSlot> slots,
                                 std::span<const AddressRange> cells) {
  if (slots.empty() || cells.empty()) return {};
  GuestChooser largest(slots, cells);
  GuestChooser longest(slots, cells);
  std::vector<Guest> by_bytes = largest.choose(true);
  std::vector<Guest> by_life = longest.choose(false);
  return longest.highest_load() < largest.highest_load() ? std::move(by_life) : std::move(by_bytes);
}

}  // namespace headroom::memory
