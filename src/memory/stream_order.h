// StreamOrder: what a program itself has put in order between its streams.
//
// A program records an event on one stream and lets another wait for it: then all that the second
// is given from now on comes after all that the first had been given by then, however far behind
// the device is. Memory that was released on the first before the event may be the second's at
// once, without any look at the device.
//
// Vector clocks (Mattern 1989). Each stream counts epochs: one ends wherever an event is recorded
// on it. What is released on a stream is of the epoch that runs there.
//   1. An event holds, of each stream, the last epoch whose work comes before it: what its stream
//      knew, and of its own stream the epoch that it ends.
//   2. A stream that waits for an event knows what the event holds, beside what it knew.
//   3. So `who` knows epoch e of `of` only if all work of that epoch, and of those before it, comes
//      before what `who` is given from now on.
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
#include <vector>

namespace headroom::memory {

class StreamOrder {
 public:
  static constexpr size_t kMostStreams = 16;
  static constexpr size_t kKeptEvents = 2048;
  using Epoch = uint64_t;
  using Ticket = uint64_t;  // of an event; 0: of none

  // An event is about to be recorded on the stream.
  Ticket record(int64_t stream);
  // The stream waits for the event from now on. One that is not known any more changes nothing.
  void wait(int64_t stream, Ticket event);

  // The epoch that runs on the stream.
  [[nodiscard]] Epoch epoch(int64_t stream) const;
  // The last epoch of `of` after which all comes that `who` is given from now on; 0: none.
  [[nodiscard]] Epoch known(int64_t who, int64_t of) const;

 private:
  using Clock = std::array<Epoch, kMostStreams>;
  struct Event {
    Ticket ticket = 0;
    Clock holds{};
  };
  static constexpr size_t kNone = kMostStreams;
  [[nodiscard]] size_t find(int64_t stream) const;
  size_t find_or_add(int64_t stream);

  std::array<int64_t, kMostStreams> streams_{};
  size_t count_ = 0;
  std::array<Clock, kMostStreams> knows_{};  // by who; of itself: the epochs that are over
  std::vector<Event> events_;                // by ticket, round and round; none before the first
  Ticket last_ = 0;
};

}  // namespace headroom::memory
