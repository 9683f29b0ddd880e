// What no allocator beats that gives memory of one stream to another behind events, over one replay
// on the fake driver: it reserves at least `bytes()`.
//
// Let live(s, u) be what stream s has at the moment u. At the moment t an event that was recorded
// on s behind a release has happened, or has not; let d(s, t) be the last release of which it has.
// What s had at any moment u from d(s, t) on is at t either alive or released behind an event that
// has not happened: it is still of s alone. Those sets of bytes are apart for different streams, so
// the sum over all streams of the most that each had since d(s, t) has to be there at t. The same
// holds for what s has now together with what it released while other streams used it, until they
// are done with it. That fragments are lost nowhere is assumed, and that events cost nothing, so it
// is a bound, not a figure to be reached. A device that is never behind: the peak of all; one that
// is an iteration behind: the sum of each stream's own peak.
//
// An event is a marker: work of the fake driver on an address that nobody has, queued before the
// release. One that an allocator records for the release comes behind it in the stream's order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>

#include "runtime/fake/fake_cuda.h"

namespace headroom::runtime::perf {

class SharedStreams {
 public:
  // Bytes are rounded ones. `handle`: the stream, as the driver is told.
  void alloc(uint32_t stream, int64_t bytes) {
    ++now_;
    change(streams_[stream], bytes);
    measure();
  }
  // REQUIRES: before the allocator is told of it.
  void release(uint32_t stream, void* handle, int64_t bytes) {
    ++now_;
    Stream& one = streams_[stream];
    change(one, -bytes);
    one.released.push_back({mark(handle), now_, 0});
  }
  // The same, where another stream uses it.
  void release(uint32_t stream, void* handle, int64_t bytes, void* other) {
    release(stream, handle, bytes);
    Stream& one = streams_[stream];
    one.pending.push_back({mark(other), now_, bytes});
    one.pending_bytes += bytes;
  }

  [[nodiscard]] int64_t bytes() const { return most_; }
  // Allocations and releases between a moment and the last release of its busiest stream that is
  // known to be over: the mean over all allocations.
  [[nodiscard]] double mean_events_behind() const {
    return samples_ == 0 ? 0 : static_cast<double>(behind_) / static_cast<double>(samples_);
  }

 private:
  struct Marker {
    uint64_t address = 0;
    int64_t moment = 0;
    int64_t bytes = 0;
  };
  struct Level {
    int64_t moment = 0;
    int64_t bytes = 0;
  };
  struct Stream {
    int64_t live = 0;
    std::deque<Level> highest;  // levels that no later one exceeds, since the last known release
    std::deque<Marker> released;
    std::deque<Marker> pending;  // used by other streams
    int64_t pending_bytes = 0;
  };

  uint64_t mark(void* handle) {
    const uint64_t address = ++markers_;  // far below all that is mapped
    headroom_fake_work(handle, address, 1);
    return address;
  }
  static bool has_happened(const Marker& marker) {
    void* const nobody = reinterpret_cast<void*>(uintptr_t{1});
    return headroom_fake_is_touched(nobody, marker.address, 1) == 0;
  }
  void change(Stream& stream, int64_t bytes) const {
    stream.live += bytes;
    while (!stream.highest.empty() && stream.highest.back().bytes <= stream.live) {
      stream.highest.pop_back();
    }
    stream.highest.push_back({now_, stream.live});
  }
  // Levels from before the last release that is known to be over count no more.
  void forget(Stream& stream) const {
    int64_t known = 0;
    while (!stream.released.empty() && has_happened(stream.released.front())) {
      known = stream.released.front().moment;
      stream.released.pop_front();
    }
    while (stream.highest.size() > 1 && stream.highest.front().moment < known) {
      stream.highest.pop_front();
    }
    while (!stream.pending.empty() && has_happened(stream.pending.front())) {
      stream.pending_bytes -= stream.pending.front().bytes;
      stream.pending.pop_front();
    }
  }
  void measure() {
    int64_t sum = 0;
    int64_t behind = 0;
    for (auto& [number, stream] : streams_) {
      forget(stream);
      sum += std::max(stream.highest.front().bytes, stream.live + stream.pending_bytes);
      if (!stream.released.empty()) {
        behind = std::max(behind, now_ - stream.released.front().moment);
      }
    }
    most_ = std::max(most_, sum);
    behind_ += behind;
    ++samples_;
  }

  std::map<uint32_t, Stream> streams_;
  uint64_t markers_ = 0;
  int64_t now_ = 0;
  int64_t most_ = 0;
  int64_t behind_ = 0;
  int64_t samples_ = 0;
};

}  // namespace headroom::runtime::perf
