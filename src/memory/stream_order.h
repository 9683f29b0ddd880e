// StreamOrder: what a program itself has put in order between its streams.
//
// A program records an event on one stream and lets another wait for it: then all that the second
// is given from now on comes after all that the first had been given by then, however far behind
// the device is. Memory that was released before may be the second's at once, without any look at
// the device.
//
// Vector clocks (Mattern 1989). Each stream counts epochs: one ends wherever an event is recorded
// on it. What is queued on a stream is of the epoch that runs there.
//   1. An event holds, of each stream, the last epoch whose work comes before it: what its stream
//      knew, and of its own stream the epoch that it ends.
//   2. A stream that waits for an event knows what the event holds, beside what it knew.
//   3. So `who` knows epoch e of `of` only if all work of that epoch, and of those before it, comes
//      before what `who` is given from now on.
//   4. A block may be at work on its own stream, and on any that came behind the epoch in which it
//      was requested: nobody else may touch it, as its bytes were another's before. Programs give a
//      block back while others are at work on it, and have its own stream wait for those only
//      before that uses the bytes again; so whoever else gets them has to come after all of those.
// What is not told is not known: then less is in order here than in truth, never more. REQUIRES of
// who tells: record() before the event is recorded, wait() after the wait was queued, and nothing
// that happens while either stream is being captured.
//
// Constant time: at most kMostStreams words a call. Of more streams nothing is known, and of an
// event that kKeptEvents others came behind nothing either. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace headroom::memory {

class StreamOrder {
 public:
  static constexpr size_t kMostStreams = 32;  // as many as PyTorch makes of one priority
  static constexpr size_t kKeptEvents = 2048;
  using Epoch = uint64_t;
  using Ticket = uint64_t;  // of an event; 0: of none
  // By stream, in the order in which they were first told of; 0: nothing of that one.
  using Clock = std::array<Epoch, kMostStreams>;

  // An event is about to be recorded on the stream, by the program or by us.
  Ticket record(int64_t stream);
  Ticket record_ours(int64_t stream);
  // The stream waits for the event from now on. One that is not known any more changes nothing.
  void wait(int64_t stream, Ticket event);

  // The epoch that runs on the stream.
  [[nodiscard]] Epoch epoch(int64_t stream) const;
  // The last epoch of `of` after which all comes that `who` is given from now on; 0: none.
  [[nodiscard]] Epoch known(int64_t who, int64_t of) const;

  // Who may be at work on a block of the stream that was requested in that epoch of it: their
  // epochs that run now. Nothing where there is no room to know the stream.
  [[nodiscard]] std::optional<Clock> users(int64_t stream, Epoch requested);
  // Does all that `who` is given from now on come after all of it?
  [[nodiscard]] bool comes_after(int64_t who, const Clock& users) const;
  // The last epoch of the stream that an event of the program ended; 0: none.
  [[nodiscard]] Epoch told(int64_t stream) const;
  // Has `who` waited for all events of `of` that the program recorded, and for all that `of` has
  // waited for? Then waiting for `of` is no more than waiting for what was queued there behind the
  // last of them.
  [[nodiscard]] bool covers(int64_t who, int64_t of) const;
  // The streams, by their place in a clock.
  [[nodiscard]] std::span<const int64_t> streams() const { return {streams_.data(), count_}; }

 private:
  struct Event {
    Ticket ticket = 0;
    Clock holds{};
  };
  static constexpr size_t kNone = kMostStreams;
  [[nodiscard]] size_t find(int64_t stream) const;
  size_t find_or_add(int64_t stream);

  std::array<int64_t, kMostStreams> streams_{};
  size_t count_ = 0;
  Clock told_{};
  std::array<Clock, kMostStreams> knows_{};  // by who; of itself: the epochs that are over
  std::vector<Event> events_;                // by ticket, round and round; none before the first
  Ticket last_ = 0;
};

}  // namespace headroom::memory
