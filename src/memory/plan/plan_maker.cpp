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

// A signature on the way: what is planned of its slots, and what was seen beside them.
struct Draft {
  SignaturePlan plan;
  std::vector<uint32_t> iterations;
  std::vector<DynamicSighting> sightings;
  std::vector<int64_t> arena_bytes;    // by stream
  std::vector<int64_t> carried_bytes;  // by stream
  std::vector<uint32_t> hosts;         // by slot: the stream in whose arena it lies
  // By slot: the most slots from the release of a block that another stream used until that was
  // done with it; 0: not seen.
  std::vector<uint32_t> delays;
};

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

class PlanMaker {
 public:
  PlanMaker(const UnderstoodRecording& recording, const PlanOptions& options, bool plans_varying)
      : requests_(recording.requests),
        iterations_(recording.iterations),
        classes_(recording.classes),
        finder_(recording.finder),
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
    if (options_.lends) lend();
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
    const IterationSlots common = finder_.find(iterations_, std::move(kind));
    Draft draft;
    draft.iterations = common.iterations;
    draft.plan.iterations = static_cast<uint32_t>(common.iterations.size());
    std::vector<uint32_t> kept;
    for (uint32_t slot = 0; slot < common.slots.size(); ++slot) {
      const bool varies = common.slots[slot].smallest != common.slots[slot].largest;
      if (!varies || (plans_varying_ && has_bytes(common, slot))) kept.push_back(slot);
    }
    std::vector<SlotClock> clocks(common.iterations.size());
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
    see_dynamic(common, kept, clocks, draft);
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

  void see_dynamic(const IterationSlots& common, const std::vector<uint32_t>& kept,
                   const std::vector<SlotClock>& clocks, Draft& draft) const {
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

  // The stream with the largest arena borrows from all others that carry nothing over.
  void lend() {
    uint32_t borrower = 0;
    for (uint32_t stream = 1; stream < handles_.size(); ++stream) {
      if (arena_bytes(stream) > arena_bytes(borrower)) borrower = stream;
    }
    for (uint32_t lender = 0; lender < handles_.size(); ++lender) {
      if (lender != borrower) lend(borrower, lender);
    }
    for (Draft& draft : drafts_) place(draft, borrower);
  }

  void lend(uint32_t borrower, uint32_t lender) {
    std::vector<AddressRange> tenants;
    for (const Draft& draft : drafts_) {
      if (draft.carried_bytes[lender] > 0) return;
      for (const PlannedSlot& slot : draft.plan.slots) {
        if (slot.stream != lender || slot.is_elsewhere) continue;
        tenants.push_back({slot.offset, round_up(slot.largest, options_.alignment)});
      }
    }
    const std::vector<AddressRange> cells =
        cells_of(std::move(tenants), {0, round_up(arena_bytes(lender), options_.alignment)});
    for (Draft& draft : drafts_) {
      uint32_t gap = 0;
      for (const uint32_t delay : draft.delays) gap = std::max(gap, delay);
      if (gap == 0) continue;  // nothing is known of how far behind the device is
      std::vector<LendingSlot> slots;
      for (uint32_t i = 0; i < draft.plan.slots.size(); ++i) {
        const PlannedSlot& slot = draft.plan.slots[i];
        LendingSlot& made = slots.emplace_back();
        made.ends = slot.ends;
        made.offset = slot.offset;
        made.is_of_lender = slot.stream == lender;
        const bool takes_part = made.is_of_lender || (slot.stream == borrower && !slot.is_guest);
        if (takes_part && !slot.is_carried && !slot.is_elsewhere) {
          made.bytes = round_up(slot.largest, options_.alignment);
        }
        made.may_be_guest = !made.is_of_lender && slot.smallest == slot.largest;
        if (made.is_of_lender && draft.delays[i] == 0) made.ends += gap;
      }
      for (const Guest& guest : choose_guests(slots, cells, gap)) {
        draft.plan.slots[guest.slot].offset = guest.offset;
        draft.plan.slots[guest.slot].is_guest = true;
        draft.hosts[guest.slot] = lender;
      }
    }
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
