#include "memory/packing/recorded_requests.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/units.h"
#include "memory/snapshot_replay.h"

namespace headroom::memory {
namespace {

bool is_plausible(int64_t size) { return size >= 0 && size <= kMaxRequest; }

class Reader {
 public:
  RecordedRequests read(const Snapshot& snapshot) {
    int64_t time = 0;
    for (const TraceEntry& entry : snapshot.trace) {
      ++time;
      if (entry.action == TraceAction::alloc) begin(entry, time);
      if (entry.action == TraceAction::free_requested) give_back(entry, time);
      if (entry.action == TraceAction::free_completed) end(entry, time);
    }
    ++time;
    add_survivors(snapshot, time);
    for (const auto& [address, request] : live_) finish(request, time);
    std::sort(result_.requests.begin(), result_.requests.end(),
              [](const RecordedRequest& a, const RecordedRequest& b) {
                return std::tie(a.lower, a.address) < std::tie(b.lower, b.address);
              });
    return std::move(result_);
  }

 private:
  void begin(const TraceEntry& entry, int64_t time) {
    touched_[entry.address] = true;
    if (!is_plausible(entry.size)) return contradict();
    const RecordedRequest request{time, 0, entry.size, entry.stream, entry.address, 0};
    const auto [at, is_new] = live_.try_emplace(entry.address, request);
    if (is_new) return;
    // Its release was not recorded; it cannot have lived on.
    contradict();
    finish(at->second, time);
    at->second = request;
  }

  void give_back(const TraceEntry& entry, int64_t time) {
    const auto at = live_.find(entry.address);
    if (at != live_.end()) at->second.released = time;
  }

  void end(const TraceEntry& entry, int64_t time) {
    const auto at = live_.find(entry.address);
    if (at != live_.end()) {
      finish(at->second, time);
      live_.erase(at);
    } else if (touched_.contains(entry.address) || !is_plausible(entry.size)) {
      contradict();
    } else {
      ++result_.at_start;
      finish({0, 0, entry.size, entry.stream, entry.address, 0}, time);
    }
    touched_[entry.address] = true;
  }

  // What the end state holds and the trace never mentions was there all the time.
  void add_survivors(const Snapshot& snapshot, int64_t time) {
    for (const SnapshotSegment& segment : snapshot.segments) {
      for (const SnapshotBlock& block : segment.blocks) {
        if (block.state != BlockState::allocated && block.state != BlockState::pending) continue;
        if (live_.contains(block.address)) continue;
        if (touched_.contains(block.address) || !is_plausible(block.requested)) {
          contradict();
          continue;
        }
        ++result_.at_start;
        finish({0, 0, block.requested, segment.stream, block.address, 0}, time);
      }
    }
  }

  void finish(RecordedRequest request, int64_t time) {
    request.upper = time;
    // The entry right after: nobody waited.
    if (request.released == 0 || request.released + 1 >= time) request.released = time;
    result_.requests.push_back(request);
  }
  void contradict() { ++result_.contradictions; }

  RecordedRequests result_;
  std::map<int64_t, RecordedRequest> live_;  // by address
  std::map<int64_t, bool> touched_;          // addresses that the trace mentions
};

// Sums of what a hostile file says may wrap; they are reported, and nothing is computed from them.
int64_t plus(int64_t a, int64_t b) { return checked_add(a, b).value_or(0); }

// Back from the end state, entry by entry.
RecordedPeaks rewound_peaks(const Snapshot& snapshot, const AllocatorSettings& settings) {
  int64_t reserved = 0;
  int64_t allocated = 0;
  for (const SnapshotSegment& segment : snapshot.segments) {
    reserved = plus(reserved, segment.total_size);
    allocated = plus(allocated, segment.allocated_size);
  }
  RecordedPeaks peaks{allocated, reserved};
  for (size_t i = snapshot.trace.size(); i-- > 0;) {
    const TraceEntry& entry = snapshot.trace[i];
    if (!is_plausible(entry.size)) continue;
    switch (entry.action) {
      case TraceAction::segment_alloc:
      case TraceAction::segment_map:
        reserved = plus(reserved, -entry.size);
        break;
      case TraceAction::segment_free:
      case TraceAction::segment_unmap:
        reserved = plus(reserved, entry.size);
        break;
      case TraceAction::alloc:
        allocated = plus(allocated, -rounded_size(settings, entry.size));
        break;
      case TraceAction::free_requested:
        allocated = plus(allocated, rounded_size(settings, entry.size));
        break;
      default:
        break;
    }
    peaks.reserved_bytes = std::max(peaks.reserved_bytes, reserved);
    peaks.allocated_bytes = std::max(peaks.allocated_bytes, allocated);
  }
  return peaks;
}

}  // namespace

RecordedRequests recorded_requests(const Snapshot& snapshot) { return Reader().read(snapshot); }

RecordedPeaks recorded_peaks(const Snapshot& snapshot, const AllocatorSettings& settings) {
  const SnapshotReplay replay = replay_snapshot(snapshot, {.settings = settings});
  if (replay.is_exact() && !snapshot.trace.empty()) {
    return {replay.peak_allocated.bytes, replay.peak_reserved.bytes};
  }
  return rewound_peaks(snapshot, settings);
}

}  // namespace headroom::memory
