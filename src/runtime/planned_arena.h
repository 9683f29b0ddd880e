// PlannedArena: requests served from a CompiledPlan, each in constant time while the run does what
// it did before, and never wrong when it does not.
//
// Matching. Each track has a place in its sequence, the cursor: the next request is expected to be
// that slot. Where it is not, in this order: a slot whose size varies takes what fits; a leap that
// was tried before is followed; another signature that agrees with all of this pass so far takes
// over; the last kGramRequests requests, where they occur once in a sequence, say where it is; a
// slot up to kReach ahead of this size is served, and followed only if the next request agrees; one
// that was passed over lately is served late. All of it looks at a bounded number of slots.
//
// Occupancy. Blocks in their slots within their planned time are `regular`; all others (in space
// that is idle, later than planned, served ahead, of another signature, of the pass before) are
// `stray` and lie in an ordered map. With P the moment up to which endings were looked at:
//   1. A regular block is of a slot j of the current sequence with j <= P < ends of j.
//   2. So all regular blocks, and any slot s <= P < ends of s, are alive together at P by the plan,
//      and share no byte; the plan was checked for that.
//   3. A slot is served where it meets 2 and its bytes meet no stray.
//   4. When P moves on, whoever should have ended by then and did not becomes stray.
//   5. A slot that is served ahead is held against the strays and against the regular blocks that
//      should end before it begins, and is stray itself.
//   6. Idle space is served where it meets no stray, from spaces which no slot alive between two
//      moments touches: the plan's own, where it foresaw the request, else those that are idle for
//      the longest stretch from now on. The request is stray; a slot that finds it in its way later
//      goes to idle space itself.
//
// Lending. A guest (compiled_plan.h) is a block of its own track like any other, regular or stray,
// and all of the above holds for it. Whether its bytes are also free of what the lender had there
// is a matter of cells:
//   7. A cell is one track's at a time, its holder's, and all that lies in it is the holder's.
//   8. It changes hands only where nothing lies in it or awaits an event, and either the last
//      release in it was one behind an event of the holder's own stream, recorded after it, or the
//      taker's stream comes after whatever may be at work on what was released in it: the block's
//      own stream, and all that came behind its request (stream_order.h). So the device has done
//      all that touches the cell, or does it before what the taker is given. Behind an event, too,
//      those others are awaited, as far as they are known: a program that uses a block on a stream
//      that it tells nobody of (no record_stream, no wait that is told) has it in use unseen.
//   9. A lender that finds a cell of its own not given back at its turn goes elsewhere, for once:
//      then nothing is lent for some passes, twice as many each time.
// Nobody waits: whoever does not get the cells is served like a request whose slot is taken.
//
// Without strays a request costs a comparison, the endings of one moment, and a bit; with them the
// look-up of a map. REQUIRES the lock of device_allocator.h; touches no memory.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "memory/stream_order.h"
#include "runtime/compiled_plan.h"
#include "runtime/driver.h"

namespace headroom::runtime {

class PlannedArena {
 public:
  enum class Source : uint8_t { none, planned, reused };
  struct Served {
    Source source = Source::none;
    int64_t address = 0;
    bool begins_pass = false;   // of the main track: an iteration begins
    bool is_elsewhere = false;  // it came in its turn, and has no bytes here
  };
  struct Block {
    int64_t requested = 0;
    uint32_t serial = 0;
    bool has_uses = false;
    bool is_pending = false;
  };

  // `bases`: where each track's bytes lie. A track without a stream takes the first that is new.
  explicit PlannedArena(std::shared_ptr<const CompiledPlan> plan);

  // Where a track's bytes lie, and whose requests it serves.
  void place(uint32_t track, int64_t base) {
    tracks_[track].delta = base - plan_->tracks[track].offset;
  }
  void set_stream(uint32_t track, CudaStream* stream) {
    tracks_[track].stream = stream;
    tracks_[track].has_stream = true;
  }

  Served allocate(CudaStream* stream, int64_t size, uint32_t serial) {
    const Served served = allocate_expected(stream, size, serial);
    if (served.source != Source::none) [[likely]]
      return served;
    const uint32_t number = track_of(stream);
    return number == kNoNumber ? Served{} : allocate_slowly(number, size, serial);
  }
  // Serves what comes in order, into a slot that is surely free; else none, and nothing happened.
  Served allocate_expected(CudaStream* stream, int64_t size, uint32_t serial) {
    const uint32_t number = track_of(stream);
    if (number == kNoNumber) [[unlikely]]
      return {};
    TrackState& track = tracks_[number];
    const CompiledSlot& slot = track.slots[track.cursor];
    if (slot.size != size || !track.is_regular) [[unlikely]]
      return {};
    end_until(track, track.cursor);
    if (!track.is_regular) [[unlikely]]
      return {};
    const bool begins = track.cursor == 0 && number == plan_->main_track;
    take_regular(number, track.cursor++, size, serial);
    if (begins) [[unlikely]]
      begin_main_pass(track);
    return {Source::planned, slot.offset + track.delta, begins};
  }
  // What the program has put in order between its streams; outlives the arena. Without it nothing
  // is in order.
  void set_order(memory::StreamOrder* order) { order_ = order; }
  // Joins, of a plan that lends in the program's order. Programs release much behind the last event
  // of a stream, so that nobody's wait covers it. Where the borrower has waited for all events of
  // the streams that may be at work on what a lender released, and these asked for nothing since,
  // events of ours are recorded on them at once (wanted_events), and the borrower waits for those
  // when a guest needs it (wanted_join).
  [[nodiscard]] bool is_join_due() const { return is_join_due_; }
  // From now on none is wanted.
  void forbid_joins() { allows_joins_ = is_join_due_ = false; }
  // Something that the borrower has waited for may have made a stream quiet.
  void note_wait() { is_join_due_ = is_join_due_ || (has_pending_ && allows_joins_); }
  struct WantedEvents {
    uint32_t lender = 0;
    std::vector<CudaStream*> streams;
  };
  [[nodiscard]] std::optional<WantedEvents> wanted_events();
  // They were recorded, behind all that the lender has released so far.
  void have_recorded(uint32_t lender) {
    tracks_[lender].is_recorded = tracks_[lender].has_events = true;
  }
  // The lender whose recorded events the borrower has to wait for before the request is served.
  [[nodiscard]] std::optional<uint32_t> wanted_join(CudaStream* stream);
  void have_joined(uint32_t lender);
  [[nodiscard]] CudaStream* borrower() const { return tracks_[plan_->borrower].stream; }
  // Who may be at work on a block beside its own stream, as far as it is known. REQUIRES: find().
  [[nodiscard]] std::vector<CudaStream*> users(int64_t address);
  // Follows a request without serving it.
  struct Followed {
    bool begins_pass = false;  // of the main track: an iteration begins
    bool ends_pass = false;    // the same, and most of the one before it came as planned
  };
  Followed follow(CudaStream* stream, int64_t size);

  // Serves the request that follow() has just seen begin a pass, from its slot; else, and where the
  // plan has served already, none.
  Served serve_first(CudaStream* stream, int64_t size, uint32_t serial);

  [[nodiscard]] bool contains(int64_t address) const { return track_at(address) != kNoNumber; }
  // The live block there, or null. Good until the next call.
  [[nodiscard]] Block* find(int64_t address);
  // Whose block lies there. REQUIRES: find(address).
  [[nodiscard]] CudaStream* stream_at(int64_t address) const {
    return tracks_[holder_at(address)].stream;
  }
  [[nodiscard]] CudaStream* stream_of(uint32_t track) const { return tracks_[track].stream; }
  [[nodiscard]] bool has_stream(uint32_t track) const { return tracks_[track].has_stream; }
  // REQUIRES: find(address).
  void release(int64_t address);
  // The program gives the block back. True where another stream comes next in its cells: then it is
  // to be released only behind an event that is recorded on its own stream from now on.
  // REQUIRES: find(address); release() follows.
  bool hand_over(int64_t address);
  // Releases a block in its slot that no other stream used, and says what it was; false for others.
  bool release_regular(int64_t address, Block& was) {
    const TrackState& first = tracks_[last_track_];
    uint32_t number = last_track_;
    const Track& range = plan_->tracks[number];
    if (static_cast<uint64_t>(address - first.delta - range.offset) >=
        static_cast<uint64_t>(range.bytes)) {
      number = track_at(address);
      if (number == kNoNumber) return false;
    }
    TrackState& track = tracks_[number];
    if (track.lends) return false;
    const uint32_t place = plan_->place_of.find(address - track.delta + kPlaceShift);
    if (place == kNoNumber) return false;
    Placed& placed = placed_[place];
    if (!placed.is_regular || placed.block.has_uses) return false;
    was = placed.block;
    placed.is_regular = false;
    track.regular[placed.slot] = 0;
    --live_;
    return true;
  }

  [[nodiscard]] const CompiledPlan& plan() const { return *plan_; }
  [[nodiscard]] int64_t live_blocks() const { return live_; }
  [[nodiscard]] int64_t base(uint32_t track) const {
    return plan_->tracks[track].offset + tracks_[track].delta;
  }
  [[nodiscard]] size_t strays() const;
  [[nodiscard]] int64_t guests() const { return guests_; }  // that came into their cells so far
  [[nodiscard]] bool is_lending() const { return is_lending_; }
  // All live blocks: address, bytes, what is known of them.
  struct Shown {
    int64_t address = 0;
    int64_t room = 0;
    Block block;
    CudaStream* stream = nullptr;
  };
  [[nodiscard]] std::vector<Shown> blocks() const;

 private:
  struct Placed {
    Block block;
    uint32_t slot = 0;
    uint32_t track = 0;
    bool is_regular = false;
  };
  struct Stray {
    int64_t end = 0;
    Block block;
  };
  struct TrackState {
    const Sequence* sequence = nullptr;   // null: its place is not known
    const CompiledSlot* slots = nullptr;  // of the sequence, or a sentinel alone
    const uint32_t* ending_begin = nullptr;
    const uint32_t* ending = nullptr;
    bool is_regular = false;  // no strays, nothing was served ahead, nothing is lent: see settle()
    uint32_t cursor = 0;
    uint32_t ended = 0;  // P + 1: endings at moments below it were looked at
    uint32_t after_leap = kNoNumber;
    uint32_t misses = 0;        // in a row
    uint32_t without_slot = 0;  // since the cursor moved
    uint32_t seen = 0;
    uint32_t told = 0;       // the cursor when `history` was written; all since came in order
    bool has_begun = false;  // a pass, from its first slot on, while it only followed
    uint32_t followed = 0;   // slots of it that came in order
    int64_t delta = 0;       // from offsets to addresses
    CudaStream* stream = nullptr;
    bool has_stream = false;
    bool lends = false;  // and so is never regular
    // Releases in cells are numbered. The last of its own behind an event of its stream: the device
    // has done what came before it, too.
    uint64_t settled = 0;
    // Of one that lends in the program's order: the epoch of its stream in which it asked for
    // something last; who may be at work on what it released in its cells, of which the borrower
    // has not been made to wait; and whether something was released, and events recorded, since.
    memory::StreamOrder::Epoch asked = 0;
    memory::StreamOrder::Clock pending{};
    bool has_pending = false;
    bool is_recorded = false;
    bool has_events = false;  // that the borrower has not been made to wait for
    std::array<int64_t, kGramRequests> history{};
    std::vector<uint64_t> regular;    // a bit a slot
    std::map<int64_t, Stray> strays;  // by offset
    std::vector<uint32_t> leaped;     // slots at the cursor or ahead of it that were served
    std::vector<uint32_t> passed;     // slots that were passed over, latest last
  };
  struct Cell {
    uint32_t holder = 0;
    uint32_t blocks = 0;    // in it, or awaiting events
    uint64_t released = 0;  // the number of the holder's last release in it
    // Who may be at work on what the holder released in it.
    memory::StreamOrder::Clock users{};
    bool has_unknown_users = false;  // there was no room for them
  };
  struct InCells {
    uint32_t first = 0;
    uint32_t last = 0;        // one past it
    uint64_t released = 0;    // the number of its release
    bool is_settled = false;  // that is behind an event
    memory::StreamOrder::Epoch requested = 0;
  };
  struct Match {
    enum class Kind : uint8_t { none, in_order, ahead, late } kind = Kind::none;
    uint32_t slot = 0;
  };

  uint32_t track_of(CudaStream* stream) {
    if (tracks_[last_track_].stream == stream && tracks_[last_track_].has_stream) [[likely]] {
      return last_track_;
    }
    return find_track(stream);
  }
  uint32_t find_track(CudaStream* stream);
  [[nodiscard]] uint32_t track_at(int64_t address) const;

  static bool is_regular(const TrackState& track, uint32_t slot) {
    return track.regular[slot] != 0;
  }
  static bool is_elsewhere(const TrackState& track, uint32_t slot) {
    return track.slots[slot].place == kNoNumber;
  }
  // Invariant 4, up to and with `moment`.
  void end_until(TrackState& track, uint32_t moment) {
    for (; track.ended <= moment; ++track.ended) {
      const uint32_t end = track.ending_begin[track.ended + 1];
      for (uint32_t i = track.ending_begin[track.ended]; i < end; ++i) {
        if (is_regular(track, track.ending[i])) [[unlikely]] {
          make_stray(track, track.ending[i]);
        }
      }
    }
  }
  // The slot's turn has come.
  void pass_by(TrackState& track, uint32_t slot) {
    end_until(track, slot);
    track.without_slot = 0;
  }
  void take_regular(uint32_t number, uint32_t slot, int64_t size, uint32_t serial) {
    TrackState& track = tracks_[number];
    track.regular[slot] = 1;
    Placed& placed = placed_[track.slots[slot].place];
    placed.block = {size, serial, false, false};
    placed.slot = slot;
    placed.track = number;
    placed.is_regular = true;
    ++live_;
  }
  // After anything but what came in order.
  static void settle(TrackState& track) {
    track.is_regular = is_undisturbed(track);
    track.told = track.cursor;
  }
  static bool is_undisturbed(const TrackState& track) {
    return track.strays.empty() && track.leaped.empty() && !track.lends;
  }
  void catch_up(TrackState& track);
  void make_stray(TrackState& track, uint32_t slot);
  void make_all_stray(TrackState& track);
  Served allocate_slowly(uint32_t number, int64_t size, uint32_t serial);
  Served serve(uint32_t number, int64_t size, uint32_t serial);

  // Matching: moves the cursor, serves nothing.
  Match match(TrackState& track, uint32_t number, int64_t size, bool& begins_pass);
  Match match_elsewhere(TrackState& track, uint32_t number, int64_t size);
  Match look_ahead_and_back(TrackState& track, int64_t size);
  void begin_pass(TrackState& track);
  void begin_main_pass(const TrackState& main);
  void enter(TrackState& track, const Sequence& sequence, uint32_t cursor);
  void pass_over(TrackState& track, uint32_t from, uint32_t to);
  static bool fits(const Sequence& sequence, uint32_t slot, int64_t size);
  [[nodiscard]] bool agrees_so_far(const TrackState& track, const Sequence& sequence,
                                   int64_t size) const;

  bool serve_ahead(uint32_t number, uint32_t slot, int64_t size, uint32_t serial);
  bool serve_slot(uint32_t number, uint32_t slot, int64_t size, uint32_t serial);
  int64_t serve_idle(uint32_t number, int64_t size, uint32_t until, uint32_t serial);
  [[nodiscard]] const CompiledSpace* foreseen_space(const TrackState& track) const;
  static int64_t best_fit(const TrackState& track, const CompiledSpace& space, int64_t room);
  static bool meets_stray(const TrackState& track, int64_t offset, int64_t room);
  void add_stray(TrackState& track, int64_t offset, int64_t room, const Block& block);

  // Lending.
  [[nodiscard]] bool is_within(uint32_t track, int64_t offset) const {
    const Track& range = plan_->tracks[track];
    return offset >= range.offset && offset - range.offset < range.bytes;
  }
  [[nodiscard]] bool is_in_cells(uint32_t track, int64_t offset) const {
    return tracks_[track].lends || !is_within(track, offset);
  }
  bool take_cells(uint32_t track, int64_t offset, int64_t room);
  [[nodiscard]] bool is_quiet(int64_t stream) const;
  void note_users(const InCells& was, TrackState& holder);
  [[nodiscard]] std::vector<CudaStream*> streams_to_join(const TrackState& lender) const;
  [[nodiscard]] bool is_done(const Cell& cell) const {
    return tracks_[cell.holder].settled >= cell.released;
  }
  [[nodiscard]] bool comes_after(uint32_t track, const Cell& cell) const;
  void pause_lending();
  void leave_cells(int64_t offset);
  [[nodiscard]] uint32_t holder_at(int64_t address) const;
  [[nodiscard]] int64_t address_of(uint32_t track, int64_t offset) const;

  std::shared_ptr<const CompiledPlan> plan_;
  memory::StreamOrder* order_ = nullptr;
  bool is_join_due_ = false;  // somebody should look whether events are wanted
  bool has_pending_ = false;  // a lender has
  bool allows_joins_ = true;
  std::vector<TrackState> tracks_;
  std::vector<Placed> placed_;  // by place
  uint32_t last_track_ = 0;
  int64_t live_ = 0;
  std::vector<Cell> cells_;
  std::map<int64_t, InCells> in_cells_;  // by the offset of the block
  uint64_t releases_ = 0;                // in cells
  int64_t guests_ = 0;
  bool is_lending_ = true;
  uint64_t passes_ = 0;      // of the main track
  uint64_t lends_from_ = 0;  // pass
  uint64_t pause_ = 8;       // passes
  CompiledSlot sentinel_;
};

}  // namespace headroom::runtime
