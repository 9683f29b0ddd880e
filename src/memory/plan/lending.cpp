#include "memory/plan/lending.h"

#include <algorithm>
#include <utility>

namespace headroom::memory {
namespace {

struct Stretch {
  uint32_t begins = 0;
  uint32_t ends = 0;
};

bool meet(const Stretch& a, const Stretch& b) { return a.begins < b.ends && b.begins < a.ends; }

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
  GuestChooser(std::span<const LendingSlot> slots, std::span<const AddressRange> cells,
               uint32_t gap)
      : slots_(slots), cells_(cells), busy_(cells.size()), load_(slots.size()) {
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].bytes == 0) continue;
      if (slots_[i].is_of_lender) {
        add_busy(i, gap);
      } else {
        change_load(i, slots_[i].bytes);
      }
    }
    for (std::vector<Stretch>& stretches : busy_) join(stretches);
  }

  // `by_bytes`: the largest of what lives at the highest load first; else what lives longest.
  std::vector<Guest> choose(bool by_bytes) {
    std::vector<bool> is_tried(slots_.size());
    int64_t highest = highest_load();
    while (guests_.size() < kMostGuests) {
      const auto top = std::max_element(load_.begin(), load_.end());
      highest = std::min(highest, *top);
      if (!add_guest(static_cast<uint32_t>(top - load_.begin()), by_bytes, is_tried)) break;
    }
    send_home(std::min(highest, highest_load()));
    return guests_;
  }
  [[nodiscard]] int64_t highest_load() const {
    return *std::max_element(load_.begin(), load_.end());
  }

 private:
  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(slots_.size()); }
  [[nodiscard]] Stretch life(uint32_t slot) const { return {slot, slots_[slot].ends}; }

  void change_load(uint32_t slot, int64_t bytes) {
    for (uint32_t i = slot; i < slots_[slot].ends; ++i) load_[i] += bytes;
  }

  void add_busy(uint32_t slot, uint32_t gap) {
    const LendingSlot& what = slots_[slot];
    const auto [first, last] = cells_over(cells_, what.offset, what.bytes);
    const uint64_t ends = what.ends;
    for (uint32_t cell = first; cell < last; ++cell) {
      std::vector<Stretch>& busy = busy_[cell];
      busy.push_back(
          {slot - std::min(slot, gap), static_cast<uint32_t>(std::min<uint64_t>(ends, count()))});
      // The iterations before and after are like this one.
      if (slot < gap) busy.push_back({count() - std::min(count(), gap - slot), count()});
      if (ends > count()) {
        busy.push_back({0, static_cast<uint32_t>(std::min<uint64_t>(ends - count(), count()))});
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
    for (size_t i = guests_.size(); i-- > 0;) {
      const uint32_t slot = guests_[i].slot;
      const int64_t most =
          *std::max_element(load_.begin() + slot, load_.begin() + slots_[slot].ends);
      if (most + slots_[slot].bytes > highest) continue;
      change_load(slot, slots_[slot].bytes);
      guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // The lowest offset at which nobody is while it lives; -1 where there is none.
  [[nodiscard]] int64_t room_for(uint32_t slot) const {
    const Stretch lives = life(slot);
    std::vector<AddressRange> taken;
    for (size_t i = 0; i < cells_.size(); ++i) {
      const auto after =
          std::partition_point(busy_[i].begin(), busy_[i].end(),
                               [&](const Stretch& busy) { return busy.ends <= lives.begins; });
      if (after != busy_[i].end() && after->begins < lives.ends) taken.push_back(cells_[i]);
    }
    for (const Guest& guest : guests_) {
      if (meet(life(guest.slot), lives)) taken.push_back({guest.offset, slots_[guest.slot].bytes});
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
};

}  // namespace

std::vector<AddressRange> cells_of(std::vector<AddressRange> tenants, AddressRange arena) {
  std::sort(tenants.begin(), tenants.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.offset < b.offset; });
  const int64_t least = arena.size / static_cast<int64_t>(kMostCells) + 1;
  std::vector<AddressRange> cells;
  int64_t begin = arena.offset;
  int64_t reach = arena.offset;
  for (const AddressRange& tenant : tenants) {
    if (tenant.size == 0) continue;
    if (tenant.offset >= reach && tenant.offset - begin >= least) {
      cells.push_back({begin, tenant.offset - begin});
      begin = tenant.offset;
    }
    reach = std::max(reach, tenant.offset + tenant.size);
  }
  const int64_t end = arena.offset + arena.size;
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

std::vector<Guest> choose_guests(std::span<const LendingSlot> slots,
                                 std::span<const AddressRange> cells, uint32_t gap) {
  if (slots.empty() || cells.empty()) return {};
  GuestChooser largest(slots, cells, gap);
  GuestChooser longest(slots, cells, gap);
  std::vector<Guest> by_bytes = largest.choose(true);
  std::vector<Guest> by_life = longest.choose(false);
  return longest.highest_load() < largest.highest_load() ? std::move(by_life) : std::move(by_bytes);
}

}  // namespace headroom::memory
