#include "memory/plan/plan_maker.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "memory/plan/dynamic_space.h"
#include "memory/plan/lending.h"
#include "memory/plan/plan_score.h"

namespace headroom::memory {
namespace {

// The first iteration of a program makes what stays (optimizer states, between its backward and the
// next forward), so that it ends elsewhere: where there are so many, it is not planned from.
constexpr size_t kEnoughWithoutFirst = 3;
constexpr size_t kMostRounds = 4;  // of lending

// When the planned slots begin in one iteration: those that it has.
class SlotClock {
 public:
  void add(uint32_t slot, int64_t time) {
    slots_.push_back(slot);
    times_.push_back(time);
  }
  // The first slot that begins at `time` or later; `count` where none does.
  [[nodiscard]] uint32_t next(int64_t time, uint32_t count) const {
    const auto at = std::lower_bound(times_.begin(), times_.end(), time);
    return at == times_.end() ? count : slots_[static_cast<size_t>(at - times_.begin())];
  }

 private:
  std::vector<uint32_t> slots_;
  std::vector<int64_t> times_;
};

// A signature on the way: what is planned of its slots, and what was seen beside them.
struct Draft {
  SignaturePlan plan;
  std::vector<DynamicSighting> sightings;
  std::vector<int64_t> arena_bytes;    // by stream
  std::vector<int64_t> carried_bytes;  // by stream
  std::vector<uint32_t> hosts;         // by slot: the stream in whose arena it lies
  // By slot: the most slots from the release of a block that another stream used until that was
  // done with it; 0: not seen.
  std::vector<uint32_t> delays;
  // What it was made from: the slots of its iterations, those of them that are planned, and when
  // these begin in each iteration.
  IterationSlots common;
  std::vector<uint32_t> kept;
  std::vector<SlotClock> clocks;
};

class PlanMaker {
 public:
  PlanMaker(const UnderstoodRecording& recording, const PlanOptions& options, bool plans_varying)
      : requests_(recording.requests),
        iterations_(recording.iterations),
        classes_(recording.classes),
        finder_(recording.finder),
        order_(recording.order),
        options_(options),
        plans_varying_(plans_varying) {}

  MemoryPlan run() {
    plan_.alignment = options_.alignment;
    for (const RecordedRequest& request : requests_) handles_.push_back(request.stream);
    std::sort(handles_.begin(), handles_.end());
    handles_.erase(std::unique(handles_.begin(), handles_.end()), handles_.end());
    plan_.streams.resize(handles_.size());
    add_persistent();
    for (auto& kind :
         iterations_to_plan(iterations_, options_.most_iterations, options_.held_out)) {
      drafts_.push_back(draft(std::move(kind)));
    }
    if (options_.lending != Lending::none) lend();
    lay_out();
    for (Draft& draft : drafts_) finish(draft);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] uint32_t stream_of(int64_t handle) const {
    const auto at = std::lower_bound(handles_.begin(), handles_.end(), handle);
    return static_cast<uint32_t>(at - handles_.begin());
  }
  [[nodiscard]] bool is_persistent(uint32_t request) const {
    return classes_.by_request[request].lifespan == Lifespan::persistent;
  }
  [[nodiscard]] const Iteration& iteration(uint32_t i) const { return iterations_.whole[i]; }

  // One above the other: all of them live together sooner or later.
  void add_persistent() {
    for (uint32_t i = 0; i < requests_.size(); ++i) {
      if (!is_persistent(i)) continue;
      const uint32_t stream = stream_of(requests_[i].stream);
      int64_t& bytes = plan_.streams[stream].persistent_bytes;
      plan_.persistent.push_back({stream, requests_[i].size, bytes});
      bytes += round_up(requests_[i].size, options_.alignment);
    }
  }

  Draft draft(std::vector<uint32_t> kind) const {
    Draft draft;
    draft.common = finder_.find(iterations_, std::move(kind));
    const IterationSlots& common = draft.common;
    draft.plan.iterations = static_cast<uint32_t>(common.iterations.size());
    std::vector<uint32_t>& kept = draft.kept;
    for (uint32_t slot = 0; slot < common.slots.size(); ++slot) {
      const bool varies = common.slots[slot].smallest != common.slots[slot].largest;
      if (!varies || (plans_varying_ && has_bytes(common, slot))) kept.push_back(slot);
    }
    std::vector<SlotClock>& clocks = draft.clocks;
    clocks.resize(common.iterations.size());
    for (uint32_t number = 0; number < kept.size(); ++number) {
      for (size_t i = 0; i < clocks.size(); ++i) {
        const uint32_t request = common.request(kept[number], i);
        if (request != kNoRequest) clocks[i].add(number, requests_[request].lower);
      }
    }
    const auto count = static_cast<uint32_t>(kept.size());
    for (uint32_t number = 0; number < count; ++number) {
      uint32_t delay = 0;
      draft.plan.slots.push_back(planned(common, kept[number], clocks, number, count, delay));
      draft.hosts.push_back(draft.plan.slots.back().stream);
      draft.delays.push_back(delay);
    }
    see_dynamic(draft);
    place(draft);
    return draft;
  }

  // Whether the same bytes can be its own in every iteration.
  [[nodiscard]] bool has_bytes(const IterationSlots& common, uint32_t slot) const {
    int64_t last_upper = 0;
    for (size_t i = 0; i < common.iterations.size(); ++i) {
      const uint32_t request = common.request(slot, i);
      if (request == kNoRequest) continue;
      // A second one before the first is gone cannot have its bytes.
      if (is_persistent(request) || requests_[request].lower < last_upper) return false;
      last_upper = requests_[request].upper;
    }
    return true;
  }

  [[nodiscard]] PlannedSlot planned(const IterationSlots& common, uint32_t slot,
                                    const std::vector<SlotClock>& clocks, uint32_t number,
                                    uint32_t count, uint32_t& longest_delay) const {
    PlannedSlot planned;
    planned.stream = stream_of(common.slots[slot].stream);
    planned.smallest = common.slots[slot].smallest;
    planned.largest = common.slots[slot].largest;
    uint32_t ends = number + 1;
    longest_delay = 0;
    planned.is_elsewhere = !has_bytes(common, slot);
    if (planned.is_elsewhere) {
      planned.ends = ends;
      return planned;
    }
    for (size_t i = 0; i < clocks.size(); ++i) {
      const uint32_t index = common.request(slot, i);
      if (index == kNoRequest) continue;
      const RecordedRequest& request = requests_[index];
      if (request.upper > iteration(common.iterations[i]).upper) planned.is_carried = true;
      const uint32_t completed = clocks[i].next(request.upper, count);
      ends = std::max(ends, completed);
      if (request.released == request.upper) continue;
      const uint32_t released = clocks[i].next(request.released, count);
      longest_delay = std::max(longest_delay, completed - released + 1);
    }
    const uint32_t margin = (longest_delay + 1) / 2;
    planned.ends = planned.is_carried ? count : std::min(count, ends + std::min(margin, count));
    return planned;
  }

  void see_dynamic(Draft& draft) const {
    const auto& [common, kept, clocks] = std::tie(draft.common, draft.kept, draft.clocks);
    const auto count = static_cast<uint32_t>(kept.size());
    for (size_t i = 0; i < clocks.size(); ++i) {
      const Iteration& whole = iteration(common.iterations[i]);
      std::vector<bool> has_slot(whole.end - whole.begin);
      for (const uint32_t slot : kept) {
        const uint32_t request = common.request(slot, i);
        if (request != kNoRequest) has_slot[request - whole.begin] = true;
      }
      std::map<uint32_t, uint32_t> ranks;  // by next slot
      for (size_t r = whole.begin; r < whole.end; ++r) {
        if (has_slot[r - whole.begin] || is_persistent(static_cast<uint32_t>(r))) continue;
        const RecordedRequest& request = requests_[r];
        const uint32_t stream = stream_of(request.stream);
        const uint32_t before = clocks[i].next(request.lower, count);
        const uint32_t rank = ranks[before]++;
        if (request.upper > whole.upper) continue;  // no phase holds it
        draft.sightings.push_back({stream, before, rank, clocks[i].next(request.upper, count)});
      }
    }
  }

  // Offsets from the beginning of the arena, or of what is carried, by stream.
  void place(Draft& draft) const {
    draft.arena_bytes.resize(handles_.size());
    draft.carried_bytes.resize(handles_.size());
    for (uint32_t stream = 0; stream < handles_.size(); ++stream) place(draft, stream);
  }
  // Of the stream's slots, those that are nobody's guests.
  void place(Draft& draft, uint32_t stream) const {
    PackingProblem problem;
    problem.alignment = options_.alignment;
    std::vector<uint32_t> slots;
    draft.carried_bytes[stream] = 0;
    for (uint32_t i = 0; i < draft.plan.slots.size(); ++i) {
      PlannedSlot& slot = draft.plan.slots[i];
      if (slot.stream != stream || slot.is_guest || slot.is_elsewhere) continue;
      if (slot.is_carried) {
        slot.offset = draft.carried_bytes[stream];
        draft.carried_bytes[stream] += round_up(slot.largest, options_.alignment);
      } else {
        problem.requests.push_back({i, slot.ends, slot.largest});
        slots.push_back(i);
      }
    }
    const Synthesis synthesis = PlanSynthesizer(options_.synthesis).synthesize(problem);
    for (size_t i = 0; i < slots.size(); ++i) {
      draft.plan.slots[slots[i]].offset = synthesis.solution.offsets[i];
    }
    draft.arena_bytes[stream] = synthesis.solution.bytes;
  }

  [[nodiscard]] int64_t arena_bytes(uint32_t stream) const {
    int64_t most = 0;
    for (const Draft& draft : drafts_) most = std::max(most, draft.arena_bytes[stream]);
    return most;
  }

  // The stream with the largest arena borrows from all others.
  void lend() {
    uint32_t borrower = 0;
    for (uint32_t stream = 1; stream < handles_.size(); ++stream) {
      if (arena_bytes(stream) > arena_bytes(borrower)) borrower = stream;
    }
    for (uint32_t lender = 0; lender < handles_.size(); ++lender) {
      if (lender == borrower) continue;
      for (Draft& draft : drafts_) place_for_guests(draft, borrower, lender);
    }
    // What one lender takes off the highest load brings another moment to the top, at which those
    // before it may have room.
    bool has_more = true;
    for (size_t round = 0; round < kMostRounds && has_more; ++round) {
      has_more = false;
      for (uint32_t lender = 0; lender < handles_.size(); ++lender) {
        if (lender != borrower) has_more = lend(borrower, lender) || has_more;
      }
    }
    for (Draft& draft : drafts_) place(draft, borrower);
  }

  // Whether there are further guests.
  bool lend(uint32_t borrower, uint32_t lender) {
    bool has_more = false;
    std::vector<AddressRange> tenants;
    for (const Draft& draft : drafts_) {
      for (const PlannedSlot& slot : draft.plan.slots) {
        if (slot.stream != lender || slot.is_guest || slot.is_elsewhere || slot.is_carried)
          continue;
        tenants.push_back({slot.offset, round_up(slot.largest, options_.alignment)});
      }
    }
    const std::vector<AddressRange> cells =
        cells_of(tenants, {0, round_up(arena_bytes(lender), options_.alignment)});
    for (Draft& draft : drafts_) {
      std::vector<LendingSlot> slots = lending_slots(draft, borrower, lender);
      for (const Guest& guest : choose_guests(slots, cells)) {
        PlannedSlot& slot = draft.plan.slots[guest.slot];
        slot.offset = guest.offset;
        slot.is_guest = true;
        slot.is_in_order = options_.lending == Lending::behind_order;
        draft.hosts[guest.slot] = lender;
        has_more = true;
      }
    }
    return has_more;
  }

  // So that more of it is idle together, where that needs no more bytes.
  void place_for_guests(Draft& draft, uint32_t borrower, uint32_t lender) const {
    const std::vector<LendingSlot> slots = lending_slots(draft, borrower, lender);
    const auto placed = place_low(slots);
    if (!placed || placed->bytes > arena_bytes(lender)) return;
    for (uint32_t i = 0; i < slots.size(); ++i) {
      const bool is_placed = slots[i].is_of_lender && slots[i].bytes > 0;
      if (is_placed) draft.plan.slots[i].offset = placed->offsets[i];
    }
  }

  // None where nothing is known of when bytes are clear.
  [[nodiscard]] std::vector<LendingSlot> lending_slots(const Draft& draft, uint32_t borrower,
                                                       uint32_t lender) const {
    uint32_t gap = 0;
    for (const uint32_t delay : draft.delays) gap = std::max(gap, delay);
    const bool is_in_order = options_.lending == Lending::behind_order;
    if (is_in_order ? order_ == nullptr : gap == 0) return {};
    std::vector<LendingSlot> slots;
    for (uint32_t i = 0; i < draft.plan.slots.size(); ++i) {
      const PlannedSlot& slot = draft.plan.slots[i];
      LendingSlot& made = slots.emplace_back();
      made.ends = slot.ends;
      made.offset = slot.offset;
      made.is_of_lender = slot.stream == lender;
      made.is_guest = slot.is_guest;
      const bool is_away = slot.is_guest && draft.hosts[i] != lender;
      const bool takes_part = made.is_of_lender || (slot.stream == borrower && !is_away);
      if (takes_part && !slot.is_carried && !slot.is_elsewhere) {
        made.bytes = round_up(slot.largest, options_.alignment);
      }
      made.may_be_guest = !made.is_of_lender && !slot.is_guest && slot.smallest == slot.largest;
      if (is_in_order) {
        const int64_t other = handles_[made.is_of_lender ? borrower : lender];
        made.clear = made.bytes == 0
                         ? made.ends
                         : clear_for(other, draft, i, options_.joins && made.is_of_lender);
      } else {
        const bool has_delay = made.is_of_lender && draft.delays[i] > 0;  // which is in its end
        made.clear = made.ends + (has_delay ? 0 : gap);
      }
    }
    return slots;
  }

  // From which slot on all that the other stream is given comes after this one's release, in all
  // iterations; in the next one: counted on. Twice the number of slots where that is not seen.
  // `joins`: the other stream may be made to wait where that costs nothing.
  [[nodiscard]] uint32_t clear_for(int64_t other, const Draft& draft, uint32_t number,
                                   bool joins) const {
    const auto count = static_cast<uint32_t>(draft.plan.slots.size());
    const std::vector<uint32_t>& whole = draft.common.iterations;
    uint32_t clear = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      const uint32_t index = draft.common.request(draft.kept[number], i);
      if (index == kNoRequest) continue;
      const RecordedRequest& request = requests_[index];
      const OrderHistory::Life life{request.lower, request.upper};
      const int64_t time = joins ? order_->clear_by_joining(other, request.stream, life)
                                 : order_->clear_for(other, request.stream, life);
      if (time <= iteration(whole[i]).upper) {
        clear = std::max(clear, draft.clocks[i].next(time, count));
        continue;
      }
      // Where the next iteration is not planned from, as that of the last one, nobody can say.
      const bool has_next = i + 1 < whole.size() && whole[i + 1] == whole[i] + 1;
      if (!has_next) continue;
      if (time > iteration(whole[i + 1]).upper) return 2 * count;
      clear = std::max(clear, count + draft.clocks[i + 1].next(time, count));
    }
    return clear == 0 ? 2 * count : std::max(clear, draft.plan.slots[number].ends);
  }

  void lay_out() {
    for (uint32_t stream = 0; stream < plan_.streams.size(); ++stream) {
      PlannedStream& part = plan_.streams[stream];
      int64_t arena = 0;
      for (const Draft& draft : drafts_) {
        part.carried_bytes += draft.carried_bytes[stream];
        arena = std::max(arena, draft.arena_bytes[stream]);
      }
      part.range = {plan_.bytes,
                    round_up(part.persistent_bytes + part.carried_bytes + arena, plan_.alignment)};
      plan_.bytes += part.range.size;
    }
    for (PersistentBlock& block : plan_.persistent) {
      block.offset += plan_.streams[block.stream].range.offset;
    }
    carried_below_.resize(plan_.streams.size());
  }

  // Offsets become those of the whole range, and what is idle in the arena is known.
  void finish(Draft& draft) {
    std::vector<AddressRange> arenas;
    for (const PlannedStream& part : plan_.streams) {
      const int64_t below = part.persistent_bytes + part.carried_bytes;
      arenas.push_back({part.range.offset + below, part.range.size - below});
    }
    for (size_t i = 0; i < draft.plan.slots.size(); ++i) {
      PlannedSlot& slot = draft.plan.slots[i];
      if (slot.is_elsewhere) continue;
      const PlannedStream& part = plan_.streams[slot.stream];
      slot.offset += slot.is_carried
                         ? part.range.offset + part.persistent_bytes + carried_below_[slot.stream]
                         : arenas[draft.hosts[i]].offset;
    }
    for (size_t stream = 0; stream < carried_below_.size(); ++stream) {
      carried_below_[stream] += draft.carried_bytes[stream];
    }
    make_dynamic_spaces(draft.sightings, arenas, plan_.alignment, draft.plan);
    plan_.signatures.push_back(std::move(draft.plan));
  }

  std::span<const RecordedRequest> requests_;
  const Iterations& iterations_;
  const RequestClasses& classes_;
  const SlotFinder& finder_;
  const OrderHistory* order_;
  const PlanOptions& options_;
  bool plans_varying_;

  MemoryPlan plan_;
  std::vector<int64_t> handles_;  // of streams
  std::vector<Draft> drafts_;
  std::vector<int64_t> carried_below_;  // by stream: of the signatures before
};

}  // namespace

std::vector<std::vector<uint32_t>> iterations_to_plan(const Iterations& iterations, size_t most,
                                                      size_t held_out) {
  std::vector<std::vector<uint32_t>> kinds(iterations.kinds);
  const size_t count = iterations.whole.size();
  for (uint32_t i = 0; i < count - std::min(count, held_out); ++i) {
    kinds[iterations.whole[i].kind].push_back(i);
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::erase_if(kinds, [](const auto& kind) { return kind.empty(); });
  if (kinds.size() > kMostSignatures) kinds.resize(kMostSignatures);
  for (std::vector<uint32_t>& kind : kinds) {
    if (kind.size() >= kEnoughWithoutFirst && kind.front() == 0) kind.erase(kind.begin());
    if (most > 0 && kind.size() > most) kind.resize(most);
  }
  return kinds;
}

MemoryPlan make_plan(const UnderstoodRecording& recording, const PlanOptions& options,
                     bool plans_varying_sizes) {
  return PlanMaker(recording, options, plans_varying_sizes).run();
}

MemoryPlan make_plan(const UnderstoodRecording& recording, const PlanOptions& options) {
  MemoryPlan plan = make_plan(recording, options, true);
  const auto varies = [](const PlannedSlot& slot) { return slot.smallest != slot.largest; };
  const bool has_varying = std::any_of(
      plan.signatures.begin(), plan.signatures.end(), [&](const SignaturePlan& signature) {
        return std::any_of(signature.slots.begin(), signature.slots.end(), varies);
      });
  if (!has_varying) return plan;
  MemoryPlan fixed = make_plan(recording, options, false);
  std::vector<uint32_t> seen;
  for (const auto& kind :
       iterations_to_plan(recording.iterations, options.most_iterations, options.held_out)) {
    seen.insert(seen.end(), kind.begin(), kind.end());
  }
  std::sort(seen.begin(), seen.end());
  const auto bytes = [&](const MemoryPlan& candidate) {
    const PlanScore score = score_plan(recording, candidate, seen);
    return score.plan_bytes + score.fallback_bytes;
  };
  return bytes(fixed) < bytes(plan) ? std::move(fixed) : std::move(plan);
}

}  // namespace headroom::memory
