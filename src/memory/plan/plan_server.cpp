#include "memory/plan/plan_server.h"

#include <algorithm>
#include <tuple>

#include "base/units.h"

namespace headroom::memory {
namespace {

// How many slots ahead and back a request is looked for.
constexpr uint32_t kReach = 64;
// A request without a slot may use a place so many slots back.
constexpr uint32_t kPlaceReach = 16;

bool is_of(const PlannedSlot& slot, uint32_t stream, int64_t size) {
  return slot.stream == stream && size >= slot.smallest && size <= slot.largest;
}

}  // namespace

PlanServer::PlanServer(const MemoryPlan& plan) : plan_(plan), cursors_(plan.signatures.size()) {
  begin_iteration();
}

void PlanServer::begin_iteration() {
  for (size_t i = 0; i < cursors_.size(); ++i) {
    cursors_[i] = {};
    cursors_[i].is_used.assign(plan_.signatures[i].slots.size(), false);
  }
  chosen_ = 0;
  seen_ = 0;
}

PlanServer::Served PlanServer::allocate(uint32_t stream, int64_t size) {
  if (size == 0) return {};
  std::optional<uint32_t> slot;
  ++seen_;
  if (seen_ <= kChoosingRequests) {
    std::vector<std::optional<uint32_t>> found(cursors_.size());
    for (size_t i = 0; i < cursors_.size(); ++i) {
      found[i] = find_slot(plan_.signatures[i], cursors_[i], stream, size);
      if (found[i]) move(cursors_[i], *found[i]);
    }
    const auto best =
        std::max_element(cursors_.begin(), cursors_.end(),
                         [](const Cursor& a, const Cursor& b) { return a.met < b.met; });
    chosen_ = static_cast<uint32_t>(best - cursors_.begin());
    slot = found[chosen_];
  } else {
    slot = find_slot(plan_.signatures[chosen_], cursors_[chosen_], stream, size);
    if (slot) move(cursors_[chosen_], *slot);
  }
  const SignaturePlan& signature = plan_.signatures[chosen_];
  Cursor& cursor = cursors_[chosen_];
  const int64_t rounded = round_up(size, plan_.alignment);
  if (slot && signature.slots[*slot].is_elsewhere) return {};
  if (slot) {
    const int64_t offset = signature.slots[*slot].offset;
    if (is_free(offset, rounded)) {
      taken_[offset] = offset + rounded;
      return {Source::planned, offset};
    }
  }
  const DynamicReusableSpace* const space = space_for(signature, cursor, stream);
  if (!slot) ++cursor.without_slot;
  if (space == nullptr) return {};
  const std::optional<int64_t> offset = best_fit(*space, rounded);
  if (!offset) return {};
  taken_[*offset] = *offset + rounded;
  return {Source::reused, *offset};
}

void PlanServer::release(int64_t offset) { taken_.erase(offset); }

std::optional<uint32_t> PlanServer::find_slot(const SignaturePlan& signature, const Cursor& cursor,
                                              uint32_t stream, int64_t size) const {
  const auto count = static_cast<uint32_t>(signature.slots.size());
  const auto fits = [&](uint32_t slot) {
    return slot < count && !cursor.is_used[slot] && is_of(signature.slots[slot], stream, size);
  };
  for (const uint32_t slot : {cursor.next, cursor.after_leap}) {
    if (fits(slot)) return slot;
  }
  // A slot whose size varies takes what fits, where it is its turn.
  if (cursor.next < count && !cursor.is_used[cursor.next]) {
    const PlannedSlot& slot = signature.slots[cursor.next];
    const bool varies = slot.smallest != slot.largest;
    if (varies && slot.stream == stream && size <= slot.largest) return cursor.next;
  }
  for (uint32_t away = 1; away <= kReach; ++away) {
    if (fits(cursor.next + away)) return cursor.next + away;
  }
  for (uint32_t away = 1; away <= kReach && away <= cursor.next; ++away) {
    if (fits(cursor.next - away)) return cursor.next - away;
  }
  return std::nullopt;
}

// A leap must be borne out by the next request before the place in the plan follows it: a stray
// request may look like a slot further on.
void PlanServer::move(Cursor& cursor, uint32_t slot) const {
  ++cursor.met;
  cursor.is_used[slot] = true;
  if (slot == cursor.next || slot == cursor.after_leap) {
    cursor.next = slot + 1;
    cursor.without_slot = 0;
  }
  cursor.after_leap = slot + 1;
}

const DynamicReusableSpace* PlanServer::space_for(const SignaturePlan& signature,
                                                  const Cursor& cursor, uint32_t stream) const {
  const auto& places = signature.places;
  // The last place that is not after this one.
  const auto after = std::upper_bound(
      places.begin(), places.end(), std::tuple(stream, cursor.next, cursor.without_slot),
      [](const auto& key, const DynamicPlace& place) {
        return key < std::tuple(place.stream, place.before, place.rank);
      });
  if (after == places.begin()) return nullptr;
  const DynamicPlace& place = *std::prev(after);
  if (place.stream != stream || place.before + kPlaceReach < cursor.next) return nullptr;
  const DynamicReusableSpace& space = signature.spaces[place.space];
  return space.ends > cursor.next ? &space : nullptr;
}

std::optional<int64_t> PlanServer::best_fit(const DynamicReusableSpace& space,
                                            int64_t rounded) const {
  std::optional<int64_t> best;
  int64_t best_size = 0;
  const auto consider = [&](int64_t low, int64_t high) {
    if (high - low < rounded || (best && high - low >= best_size)) return;
    best = low;
    best_size = high - low;
  };
  for (const AddressRange& idle : space.idle) {
    int64_t low = idle.offset;
    const int64_t end = idle.offset + idle.size;
    auto taken = taken_.upper_bound(low);
    if (taken != taken_.begin()) low = std::max(low, std::prev(taken)->second);
    for (; taken != taken_.end() && taken->first < end; ++taken) {
      consider(low, taken->first);
      low = std::max(low, taken->second);
    }
    consider(low, end);
  }
  return best;
}

bool PlanServer::is_free(int64_t offset, int64_t rounded) const {
  const auto after = taken_.upper_bound(offset);
  if (after != taken_.end() && after->first < offset + rounded) return false;
  return after == taken_.begin() || std::prev(after)->second <= offset;
}

}  // namespace headroom::memory
