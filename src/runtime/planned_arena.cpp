#include "runtime/planned_arena.h"

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "memory/allocator_settings.h"
#include "memory/plan/lending.h"
#include "runtime/general_arena.h"

namespace headroom::runtime {
namespace {

// How many slots ahead a request is looked for, and how many that were passed over are remembered.
constexpr uint32_t kReach = 64;
// A request without a slot may use a place so many slots back.
constexpr uint32_t kPlaceReach = 16;
// In the first so many slots of a pass another signature may take over.
constexpr uint32_t kYoung = 64;
// So many requests in a row without a slot, and the place is lost.
constexpr uint32_t kLost = 256;
constexpr int64_t kRounding = memory::kMinBlockSize;

// What the general arena keeps apart as small is laid, out of its turn, neither into a slot ahead
// nor into idle space: little is saved, and one that stays (the loss of each step that a program
// keeps, the batch until the next one is there) would be in the way of all slots there, in each
// pass.
bool may_be_stray(int64_t size) { return size > kMostSmall; }

bool meets(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

PlannedArena::PlannedArena(std::shared_ptr<const CompiledPlan> plan)
    : plan_(std::move(plan)), tracks_(plan_->tracks.size()), placed_(plan_->places) {
  for (uint32_t i = 0; i < tracks_.size(); ++i) {
    tracks_[i].slots = &sentinel_;
    tracks_[i].lends = plan_->tracks[i].lends;
  }
  for (const uint32_t lender : plan_->lenders) cells_.push_back({lender});
}

// Streams are named by the order of their first use, as in the plan.
uint32_t PlannedArena::find_track(CudaStream* stream) {
  for (uint32_t i = 0; i < tracks_.size(); ++i) {
    if (tracks_[i].has_stream && tracks_[i].stream == stream) return last_track_ = i;
  }
  for (uint32_t i = 0; i < tracks_.size(); ++i) {
    if (tracks_[i].has_stream) continue;
    set_stream(i, stream);
    return last_track_ = i;
  }
  return kNoNumber;
}

uint32_t PlannedArena::track_at(int64_t address) const {
  for (uint32_t i = 0; i < tracks_.size(); ++i) {
    const int64_t offset = address - tracks_[i].delta - plan_->tracks[i].offset;
    if (offset >= 0 && offset < plan_->tracks[i].bytes) return i;
  }
  return kNoNumber;
}

PlannedArena::Block* PlannedArena::find(int64_t address) {
  const uint32_t number = track_at(address);
  if (number == kNoNumber) return nullptr;
  TrackState& track = tracks_[number];
  const int64_t offset = address - track.delta;
  const uint32_t place = plan_->place_of.find(offset + kPlaceShift);
  if (place != kNoNumber && placed_[place].is_regular) return &placed_[place].block;
  std::map<int64_t, Stray>& strays = tracks_[holder_at(address)].strays;
  const auto stray = strays.find(offset);
  return stray == strays.end() ? nullptr : &stray->second.block;
}

void PlannedArena::release(int64_t address) {
  TrackState& track = tracks_[holder_at(address)];
  const int64_t offset = address - tracks_[track_at(address)].delta;
  const uint32_t place = plan_->place_of.find(offset + kPlaceShift);
  --live_;
  if (!cells_.empty()) leave_cells(offset);
  if (place != kNoNumber && placed_[place].is_regular) [[likely]] {
    Placed& placed = placed_[place];
    placed.is_regular = false;
    track.regular[placed.slot] = 0;
    return;
  }
  track.strays.erase(offset);
  track.is_regular = is_undisturbed(track);
}

size_t PlannedArena::strays() const {
  size_t count = 0;
  for (const TrackState& track : tracks_) count += track.strays.size();
  return count;
}

std::vector<PlannedArena::Shown> PlannedArena::blocks() const {
  std::vector<Shown> shown;
  for (const Placed& placed : placed_) {
    if (!placed.is_regular) continue;
    const TrackState& track = tracks_[placed.track];
    const CompiledSlot& slot = track.slots[placed.slot];
    shown.push_back({address_of(placed.track, slot.offset),
                     round_up(placed.block.requested, kRounding), placed.block, track.stream});
  }
  for (uint32_t i = 0; i < tracks_.size(); ++i) {
    for (const auto& [offset, stray] : tracks_[i].strays) {
      shown.push_back({address_of(i, offset), stray.end - offset, stray.block, tracks_[i].stream});
    }
  }
  std::sort(shown.begin(), shown.end(),
            [](const Shown& a, const Shown& b) { return a.address < b.address; });
  return shown;
}

void PlannedArena::make_stray(TrackState& track, uint32_t slot) {
  const CompiledSlot& what = track.slots[slot];
  Placed& placed = placed_[what.place];
  track.regular[slot] = 0;
  track.is_regular = false;
  placed.is_regular = false;
  track.strays[what.offset] = {what.offset + round_up(placed.block.requested, kRounding),
                               placed.block};
}

void PlannedArena::make_all_stray(TrackState& track) {
  for (auto at = track.regular.begin(); at != track.regular.end(); ++at) {
    at = std::find(at, track.regular.end(), uint8_t{1});
    if (at == track.regular.end()) return;
    make_stray(track, static_cast<uint32_t>(at - track.regular.begin()));
  }
}

// What came in order since was not written down: it is what the slots say.
void PlannedArena::catch_up(TrackState& track) {
  const uint32_t came = track.cursor - track.told;
  if (came == 0) return;
  track.misses = 0;
  track.without_slot = 0;
  const uint32_t written = std::min(came, static_cast<uint32_t>(kGramRequests));
  track.seen += came - written;
  for (uint32_t slot = track.cursor - written; slot < track.cursor; ++slot) {
    track.history[track.seen++ % kGramRequests] = track.slots[slot].size;
  }
  track.told = track.cursor;
}

// From here on the track is in this sequence, and the slot at `cursor` is the one that is expected.
void PlannedArena::enter(TrackState& track, const Sequence& sequence, uint32_t cursor) {
  make_all_stray(track);
  track.sequence = &sequence;
  track.slots = sequence.slots.data();
  track.ending_begin = sequence.ending_begin.data();
  track.ending = sequence.ending.data();
  track.regular.assign(sequence.count, 0);
  track.cursor = cursor;
  track.ended = cursor;
  track.after_leap = kNoNumber;
  track.leaped.clear();
  track.passed.clear();
}

void PlannedArena::begin_pass(TrackState& track) {
  end_until(track, track.sequence->count);  // all of it: nothing is regular any more
  track.cursor = 0;
  track.ended = 0;
  track.after_leap = kNoNumber;
  track.leaped.clear();
  track.passed.clear();
}

// The main track begins a pass. So does one whose place is not known, as where its requests are the
// same again and again the last ones of them stand at many places.
void PlannedArena::begin_main_pass(const TrackState& main) {
  ++passes_;
  is_lending_ = is_lending_ || passes_ >= lends_from_;
  const auto signature = main.sequence - plan_->tracks[plan_->main_track].sequences.data();
  for (uint32_t i = 0; i < tracks_.size(); ++i) {
    if (tracks_[i].sequence != nullptr) continue;
    const Sequence& sequence = plan_->tracks[i].sequences[static_cast<size_t>(signature)];
    if (sequence.count > 0) enter(tracks_[i], sequence, 0);
  }
}

void PlannedArena::pass_over(TrackState& track, uint32_t from, uint32_t to) {
  from = std::max(from, to - std::min(to, kReach));
  for (uint32_t slot = from; slot < to; ++slot) {
    const bool was_served =
        std::find(track.leaped.begin(), track.leaped.end(), slot) != track.leaped.end();
    if (!was_served) track.passed.push_back(slot);
  }
  if (track.passed.size() > kReach) {
    track.passed.erase(track.passed.begin(),
                       track.passed.end() - static_cast<std::ptrdiff_t>(kReach));
  }
  std::erase_if(track.leaped, [&](uint32_t slot) { return slot < to; });
}

bool PlannedArena::fits(const Sequence& sequence, uint32_t slot, int64_t size) {
  if (slot >= sequence.count) return false;
  if (sequence.slots[slot].size >= 0) return sequence.slots[slot].size == size;
  return size >= sequence.sizes[slot].smallest && size <= sequence.sizes[slot].largest;
}

bool PlannedArena::agrees_so_far(const TrackState& track, const Sequence& sequence,
                                 int64_t size) const {
  if (!fits(sequence, track.cursor, size)) return false;
  const uint32_t known =
      std::min({track.cursor, track.seen - 1, static_cast<uint32_t>(kGramRequests - 1)});
  for (uint32_t back = 1; back <= known; ++back) {
    const int64_t before = track.history[(track.seen - 1 - back) % kGramRequests];
    if (!fits(sequence, track.cursor - back, before)) return false;
  }
  return true;
}

PlannedArena::Match PlannedArena::match(TrackState& track, uint32_t number, int64_t size,
                                        bool& begins_pass) {
  if (track.sequence == nullptr) return match_elsewhere(track, number, size);
  while (std::erase(track.leaped, track.cursor) > 0) ++track.cursor;
  if (track.cursor >= track.sequence->count) {
    begin_pass(track);
    if (!fits(*track.sequence, 0, size)) {
      for (const Sequence& other : plan_->tracks[number].sequences) {
        if (!fits(other, 0, size)) continue;
        enter(track, other, 0);
        break;
      }
    }
  }
  const Sequence& sequence = *track.sequence;
  // A slot whose size varies takes what is smaller than it ever was, too, where it is its turn.
  const SizeRange& sizes = sequence.sizes[track.cursor];
  const bool varies = sizes.smallest != sizes.largest;
  if (fits(sequence, track.cursor, size) || (varies && size <= sizes.largest)) {
    begins_pass = track.cursor == 0 && number == plan_->main_track;
    return {Match::Kind::in_order, track.cursor++};
  }
  if (track.after_leap != kNoNumber && track.after_leap > track.cursor &&
      fits(sequence, track.after_leap, size)) {
    pass_over(track, track.cursor, track.after_leap);
    track.cursor = track.after_leap + 1;
    return {Match::Kind::in_order, track.cursor - 1};
  }
  const Match elsewhere = match_elsewhere(track, number, size);
  if (elsewhere.kind != Match::Kind::none) return elsewhere;
  return look_ahead_and_back(track, size);
}

// Another signature, or another place in this one, where what came lately says so.
PlannedArena::Match PlannedArena::match_elsewhere(TrackState& track, uint32_t number,
                                                  int64_t size) {
  const std::vector<Sequence>& sequences = plan_->tracks[number].sequences;
  if (track.sequence != nullptr && track.cursor <= kYoung) {
    for (const Sequence& other : sequences) {
      if (&other == track.sequence || !agrees_so_far(track, other, size)) continue;
      enter(track, other, track.cursor);
      return {Match::Kind::in_order, track.cursor++};
    }
  }
  if (track.seen < kGramRequests) return {};
  uint64_t gram = 0;
  for (size_t i = 0; i < kGramRequests; ++i) {
    gram = next_gram(gram, track.history[(track.seen + i) % kGramRequests]);
  }
  const auto look_in = [&](const Sequence& sequence) -> Match {
    const auto found = sequence.grams.find(gram);
    if (found == sequence.grams.end() || !fits(sequence, found->second, size)) return {};
    const uint32_t slot = found->second;
    if (&sequence == track.sequence && slot > track.cursor) {
      pass_over(track, track.cursor, slot);
    } else {
      enter(track, sequence, slot);
    }
    track.cursor = slot + 1;
    return {Match::Kind::in_order, slot};
  };
  if (track.sequence != nullptr) {
    const Match match = look_in(*track.sequence);
    if (match.kind != Match::Kind::none) return match;
  }
  for (const Sequence& sequence : sequences) {
    if (&sequence == track.sequence) continue;
    const Match match = look_in(sequence);
    if (match.kind != Match::Kind::none) return match;
  }
  return {};
}

PlannedArena::Match PlannedArena::look_ahead_and_back(TrackState& track, int64_t size) {
  const Sequence& sequence = *track.sequence;
  for (uint32_t away = 1; away <= kReach; ++away) {
    const uint32_t slot = track.cursor + away;
    if (slot >= sequence.count) break;
    if (!fits(sequence, slot, size)) continue;
    if (std::find(track.leaped.begin(), track.leaped.end(), slot) != track.leaped.end()) continue;
    track.leaped.push_back(slot);
    track.after_leap = slot + 1;
    return {Match::Kind::ahead, slot};
  }
  for (size_t i = track.passed.size(); i-- > 0;) {
    const uint32_t slot = track.passed[i];
    if (!fits(sequence, slot, size)) continue;
    track.passed.erase(track.passed.begin() + static_cast<std::ptrdiff_t>(i));
    return {Match::Kind::late, slot};
  }
  return {};
}

PlannedArena::Followed PlannedArena::follow(CudaStream* stream, int64_t size) {
  const uint32_t number = track_of(stream);
  if (number == kNoNumber) return {};
  TrackState& track = tracks_[number];
  track.history[track.seen++ % kGramRequests] = size;
  bool begins = false;
  const Match found = match(track, number, size, begins);
  settle(track);
  if (track.sequence == nullptr) return {};
  if (begins) begin_main_pass(track);
  const bool ends = begins && track.has_begun && 2 * track.followed > track.sequence->count;
  if (begins) {
    track.has_begun = true;
    track.followed = 0;
  }
  if (found.kind == Match::Kind::in_order) {
    end_until(track, found.slot);
    ++track.followed;
  }
  return {begins, ends};
}

PlannedArena::Served PlannedArena::serve_first(CudaStream* stream, int64_t size, uint32_t serial) {
  const uint32_t number = track_of(stream);
  if (number == kNoNumber) return {};
  TrackState& track = tracks_[number];
  const bool is_behind_first = live_ == 0 && track.sequence != nullptr && track.cursor == 1;
  if (!is_behind_first || !fits(*track.sequence, 0, size)) return {};
  if (!serve_slot(number, 0, size, serial)) return {};
  settle(track);
  return {Source::planned, address_of(number, track.slots[0].offset), false};
}

PlannedArena::Served PlannedArena::allocate_slowly(uint32_t number, int64_t size, uint32_t serial) {
  TrackState& track = tracks_[number];
  catch_up(track);
  track.history[track.seen++ % kGramRequests] = size;
  const Served served = serve(number, size, serial);
  settle(track);
  return served;
}

PlannedArena::Served PlannedArena::serve(uint32_t number, int64_t size, uint32_t serial) {
  TrackState& track = tracks_[number];
  if (track.lends && order_ != nullptr) track.asked = order_->epoch(handle_of(track.stream));
  bool begins = false;
  const Match found = match(track, number, size, begins);
  if (begins) begin_main_pass(track);
  if (found.kind != Match::Kind::none && is_elsewhere(track, found.slot)) {
    track.misses = 0;
    if (found.kind == Match::Kind::in_order) pass_by(track, found.slot);
    return {Source::none, 0, begins, true};
  }
  bool is_served = false;
  switch (found.kind) {
    case Match::Kind::none:
      break;
    case Match::Kind::in_order:
      pass_by(track, found.slot);
      is_served = serve_slot(number, found.slot, size, serial);
      break;
    case Match::Kind::late:
      is_served = serve_slot(number, found.slot, size, serial);
      break;
    case Match::Kind::ahead:
      is_served = may_be_stray(size) && serve_ahead(number, found.slot, size, serial);
      break;
  }
  if (found.kind != Match::Kind::none) track.misses = 0;
  if (is_served) {
    return {Source::planned, address_of(number, track.slots[found.slot].offset), begins};
  }
  if (track.sequence == nullptr) return {};
  const uint32_t until = found.kind == Match::Kind::none ? 0 : track.slots[found.slot].ends;
  const int64_t idle = may_be_stray(size) ? serve_idle(number, size, until, serial) : -1;
  if (found.kind == Match::Kind::none) {
    ++track.without_slot;
    if (++track.misses >= kLost) {
      make_all_stray(track);
      track.sequence = nullptr;
      track.slots = &sentinel_;
      track.cursor = 0;
      track.misses = 0;
    }
  }
  if (idle < 0) return {Source::none, 0, begins};
  return {Source::reused, idle + track.delta, begins};
}

bool PlannedArena::meets_stray(const TrackState& track, int64_t offset, int64_t room) {
  const auto after = track.strays.upper_bound(offset);
  if (after != track.strays.end() && after->first < offset + room) return true;
  return after != track.strays.begin() && std::prev(after)->second.end > offset;
}

void PlannedArena::add_stray(TrackState& track, int64_t offset, int64_t room, const Block& block) {
  track.strays[offset] = {offset + room, block};
  ++live_;
}

// Invariants 2 and 3.
bool PlannedArena::serve_slot(uint32_t number, uint32_t slot, int64_t size, uint32_t serial) {
  TrackState& track = tracks_[number];
  const CompiledSlot& what = track.slots[slot];
  if (is_elsewhere(track, slot)) return false;
  if (slot >= track.ended || what.ends < track.ended || is_regular(track, slot)) return false;
  if (meets_stray(track, what.offset, what.room)) return false;
  if (is_in_cells(number, what.offset) && !take_cells(number, what.offset, what.room)) return false;
  take_regular(number, slot, size, serial);
  return true;
}

// Invariant 5.
bool PlannedArena::serve_ahead(uint32_t number, uint32_t slot, int64_t size, uint32_t serial) {
  TrackState& track = tracks_[number];
  const CompiledSlot& what = track.slots[slot];
  if (meets_stray(track, what.offset, what.room)) return false;
  const Sequence& sequence = *track.sequence;
  for (uint32_t moment = track.ended; moment <= slot; ++moment) {
    for (uint32_t i = sequence.ending_begin[moment]; i < sequence.ending_begin[moment + 1]; ++i) {
      const CompiledSlot& other = track.slots[sequence.ending[i]];
      if (is_regular(track, sequence.ending[i]) &&
          meets(what.offset, what.room, other.offset, other.room)) {
        return false;
      }
    }
  }
  if (is_in_cells(number, what.offset) && !take_cells(number, what.offset, what.room)) return false;
  add_stray(track, what.offset, round_up(size, kRounding), {size, serial, false, false});
  return true;
}

// The space that the plan has for requests without a slot here; null where it foresaw none.
const CompiledSpace* PlannedArena::foreseen_space(const TrackState& track) const {
  const Sequence& sequence = *track.sequence;
  const uint32_t now = track.cursor;
  const auto after = std::upper_bound(
      sequence.places.begin(), sequence.places.end(), std::pair(now, track.without_slot),
      [](const std::pair<uint32_t, uint32_t>& key, const CompiledPlace& place) {
        return key < std::pair(place.before, place.rank);
      });
  if (after == sequence.places.begin()) return nullptr;
  const CompiledPlace& place = *std::prev(after);
  const CompiledSpace& space = sequence.spaces[place.space];
  const bool is_over = now >= std::max(space.ends, space.begins + 1);
  if (place.before + kPlaceReach < now || space.begins > now || is_over) return nullptr;
  return &space;
}

// Invariant 6: the offset, or -1. `until`: the moment before which it is expected to be released; 0
// where nothing is known.
int64_t PlannedArena::serve_idle(uint32_t number, int64_t size, uint32_t until, uint32_t serial) {
  TrackState& track = tracks_[number];
  const int64_t room = round_up(size, kRounding);
  const uint32_t now = track.cursor;
  end_until(track, now);
  int64_t best = -1;
  if (until == 0) {
    const CompiledSpace* const foreseen = foreseen_space(track);
    if (foreseen != nullptr) best = best_fit(track, *foreseen, room);
  }
  const std::vector<IdleScale>& scales = track.sequence->idle;
  for (size_t i = 0; i < scales.size() && best < 0; ++i) {
    // The last stretch that has begun; what is expected to be over sooner needs no longer one.
    const CompiledSpace& space = scales[i].spaces[now / scales[i].step];
    const bool is_last = i + 1 == scales.size();
    if (until != 0 && !is_last && now + scales[i + 1].step >= until) continue;
    best = best_fit(track, space, room);
  }
  if (best < 0 || (is_in_cells(number, best) && !take_cells(number, best, room))) return -1;
  add_stray(track, best, room, {size, serial, false, false});
  return best;
}

// The smallest part of the space, without strays, that has room; its offset, or -1.
int64_t PlannedArena::best_fit(const TrackState& track, const CompiledSpace& space, int64_t room) {
  int64_t best = -1;
  int64_t best_bytes = 0;
  const auto consider = [&](int64_t low, int64_t high) {
    if (high - low < room || (best >= 0 && high - low >= best_bytes)) return;
    best = low;
    best_bytes = high - low;
  };
  for (const memory::AddressRange& idle : space.idle) {
    if (idle.size < room) continue;
    int64_t low = idle.offset;
    const int64_t end = idle.offset + idle.size;
    auto stray = track.strays.upper_bound(low);
    if (stray != track.strays.begin()) low = std::max(low, std::prev(stray)->second.end);
    for (; stray != track.strays.end() && stray->first < end; ++stray) {
      consider(low, stray->first);
      low = std::max(low, stray->second.end);
    }
    consider(low, end);
  }
  return best;
}

// Invariants 7 to 9. The last thing that is looked at before something is placed.
bool PlannedArena::take_cells(uint32_t track, int64_t offset, int64_t room) {
  const auto [first, last] = memory::cells_over(plan_->cells, offset, room);
  for (uint32_t i = first; i < last; ++i) {
    const bool is_lender = plan_->lenders[i] == track;
    if (cells_[i].holder == track) continue;
    const bool may_come = is_lender || is_lending_;
    const bool is_empty = cells_[i].blocks == 0;
    if (may_come && is_empty && (is_done(cells_[i]) || comes_after(track, cells_[i]))) continue;
    if (is_lender) pause_lending();
    return false;
  }
  for (uint32_t i = first; i < last; ++i) {
    Cell& cell = cells_[i];
    if (cell.holder != track) {
      cell.users = {};
      cell.has_unknown_users = false;
    }
    cell.holder = track;
    ++cell.blocks;
  }
  if (plan_->lenders[first] != track) ++guests_;
  const int64_t stream = handle_of(tracks_[track].stream);
  in_cells_[offset] = {first, last, 0, false, order_ == nullptr ? 0 : order_->epoch(stream)};
  return true;
}

// Is all that the track's stream is given from now on behind what may be at work in the cell?
bool PlannedArena::comes_after(uint32_t track, const Cell& cell) const {
  if (order_ == nullptr || cell.has_unknown_users) return false;
  return order_->comes_after(handle_of(tracks_[track].stream), cell.users);
}

std::optional<PlannedArena::WantedEvents> PlannedArena::wanted_events() {
  is_join_due_ = false;
  for (uint32_t i = 0; i < tracks_.size(); ++i) {
    TrackState& lender = tracks_[i];
    if (!lender.has_pending || lender.is_recorded) continue;
    if (order_->comes_after(handle_of(borrower()), lender.pending)) {
      lender.has_pending = false;
      continue;
    }
    std::vector<CudaStream*> streams = streams_to_join(lender);
    if (streams.empty()) continue;
    is_join_due_ = true;  // there may be more of them
    return WantedEvents{i, std::move(streams)};
  }
  return std::nullopt;
}

// Those that the borrower does not come after yet; none where one of them is not quiet.
std::vector<CudaStream*> PlannedArena::streams_to_join(const TrackState& lender) const {
  const int64_t waits = handle_of(borrower());
  std::vector<CudaStream*> streams;
  for (size_t i = 0; i < order_->streams().size(); ++i) {
    const int64_t stream = order_->streams()[i];
    if (stream == waits || lender.pending[i] <= order_->known(waits, stream)) continue;
    if (!is_quiet(stream)) return {};
    streams.push_back(stream_with_handle(stream));
  }
  return streams;
}

// Has the borrower waited for all events of the stream, and did it ask for nothing since the last?
// Of a stream whose requests are not looked at nobody knows.
bool PlannedArena::is_quiet(int64_t stream) const {
  for (const TrackState& track : tracks_) {
    if (!track.has_stream || handle_of(track.stream) != stream) continue;
    if (!track.lends || track.asked > order_->told(stream)) return false;
  }
  return order_->covers(handle_of(borrower()), stream);
}

std::optional<uint32_t> PlannedArena::wanted_join(CudaStream* stream) {
  const uint32_t number = track_of(stream);
  if (number != plan_->borrower || order_ == nullptr || !allows_joins_) return std::nullopt;
  const TrackState& track = tracks_[number];
  if (track.sequence == nullptr) return std::nullopt;
  const uint32_t slot = track.cursor < track.sequence->count ? track.cursor : 0;  // in its order
  const CompiledSlot& what = track.slots[slot];
  if (is_elsewhere(track, slot) || is_within(number, what.offset)) return std::nullopt;
  const auto [first, last] = memory::cells_over(plan_->cells, what.offset, what.room);
  const uint32_t lender = plan_->lenders[first];
  if (!tracks_[lender].has_events) return std::nullopt;
  const bool is_needed =
      std::any_of(cells_.begin() + first, cells_.begin() + last, [&](const Cell& cell) {
        return cell.holder != number && cell.blocks == 0 && !comes_after(number, cell);
      });
  return is_needed ? std::optional(lender) : std::nullopt;
}

void PlannedArena::have_joined(uint32_t lender) {
  tracks_[lender].has_events = false;
  is_join_due_ = allows_joins_;  // to see what is left of what is pending
}

void PlannedArena::pause_lending() {
  if (!is_lending_) return;
  is_lending_ = false;
  lends_from_ = passes_ + pause_;
  pause_ *= 2;
}

void PlannedArena::leave_cells(int64_t offset) {
  const auto at = in_cells_.find(offset);
  if (at == in_cells_.end()) return;
  const InCells& was = at->second;
  const uint64_t number = was.released == 0 ? ++releases_ : was.released;
  TrackState& holder = tracks_[cells_[was.first].holder];
  if (was.is_settled) holder.settled = std::max(holder.settled, number);
  for (uint32_t i = was.first; i < was.last; ++i) {
    Cell& cell = cells_[i];
    --cell.blocks;
    cell.released = std::max(cell.released, number);
  }
  if (order_ != nullptr) note_users(was, holder);
  in_cells_.erase(at);
}

// Who may be at work on a block that the holder has released just now.
void PlannedArena::note_users(const InCells& was, TrackState& holder) {
  const auto users = order_->users(handle_of(holder.stream), was.requested);
  const auto add = [&](memory::StreamOrder::Clock& to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], (*users)[i]);
  };
  for (uint32_t i = was.first; i < was.last; ++i) {
    cells_[i].has_unknown_users = cells_[i].has_unknown_users || !users;
    if (users) add(cells_[i].users);
  }
  if (!plan_->lends_in_order || !holder.lends || !users || !allows_joins_) return;
  add(holder.pending);
  holder.has_pending = has_pending_ = is_join_due_ = true;
  holder.is_recorded = false;
}

std::vector<CudaStream*> PlannedArena::users(int64_t address) {
  const int64_t offset = address - tracks_[track_at(address)].delta;
  const auto at = in_cells_.find(offset);
  if (order_ == nullptr || at == in_cells_.end()) return {};
  CudaStream* const own = tracks_[cells_[at->second.first].holder].stream;
  const auto clock = order_->users(handle_of(own), at->second.requested);
  std::vector<CudaStream*> users;
  for (size_t i = 0; clock && i < order_->streams().size(); ++i) {
    if ((*clock)[i] > 0) users.push_back(stream_with_handle(order_->streams()[i]));
  }
  std::erase(users, own);
  return users;
}

bool PlannedArena::hand_over(int64_t address) {
  if (in_cells_.empty() || plan_->lends_in_order) return false;
  const int64_t offset = address - tracks_[track_at(address)].delta;
  const auto at = in_cells_.find(offset);
  if (at == in_cells_.end()) return false;
  InCells& block = at->second;
  block.released = ++releases_;
  block.is_settled = true;  // of a stray nobody knows who comes next
  const uint32_t place = plan_->place_of.find(offset + kPlaceShift);
  if (place != kNoNumber && placed_[place].is_regular) {
    const Placed& placed = placed_[place];
    block.is_settled = tracks_[placed.track].sequence->hands_over[placed.slot] != 0;
  }
  return block.is_settled;
}

// The track whose block would lie there.
uint32_t PlannedArena::holder_at(int64_t address) const {
  const uint32_t track = track_at(address);
  if (track == kNoNumber || !tracks_[track].lends) return track;
  const uint32_t cell = memory::cells_over(plan_->cells, address - tracks_[track].delta, 1).first;
  return cells_[cell].holder;
}

// Of a track's block: in its own range, or a guest's in another.
int64_t PlannedArena::address_of(uint32_t track, int64_t offset) const {
  if (is_within(track, offset)) [[likely]]
    return offset + tracks_[track].delta;
  const uint32_t cell = memory::cells_over(plan_->cells, offset, 1).first;
  return offset + tracks_[plan_->lenders[cell]].delta;
}

}  // namespace headroom::runtime
