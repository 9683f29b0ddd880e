// Trace: what a profiler saw, as events of one form, whatever wrote it.
//
// Readers (kineto.h) make one of these; `ops` links and counts it, the replay in `timing` runs it
// again. It holds what those need and nothing else: 48 bytes an event, names and shapes once each,
// so that a trace of gigabytes fits. Times are integer nanoseconds of the profiler's own clock.
//
// Invariants:
//   1. events are ordered by start, and among equals the longer ones come first (a parent before
//      its child);
//   2. every index (name, detail, track) is in range or kNone; durations are not negative, and no
//      event ends beyond kMaxTraceNs;
//   3. host events are on host tracks, device events on device tracks.
//
// Plain data: read by any number of threads.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace headroom::formats {

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr int64_t kMaxTraceNs = int64_t{4'000'000'000} * 1'000'000'000;  // 126 years

// Texts once each, by number. Not synchronised.
class Names {
 public:
  Names() = default;
  Names(const Names& other);
  Names& operator=(const Names& other) { return *this = Names(other); }
  Names(Names&&) = default;
  Names& operator=(Names&&) = default;
  ~Names() = default;

  uint32_t intern(std::string_view text);
  [[nodiscard]] std::string_view at(uint32_t id) const { return texts_[id]; }
  [[nodiscard]] uint32_t find(std::string_view text) const;  // kNone where it is not there
  [[nodiscard]] size_t size() const { return texts_.size(); }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  std::deque<std::string> texts_;  // a deque keeps the keys' views valid
  std::unordered_map<std::string_view, uint32_t> ids_;
  size_t bytes_ = 0;
};

enum class TraceEventKind : uint8_t {
  host_operator,  // of the framework: aten::mm, a custom operator, a backward node
  annotation,     // a range that a person named: Optimizer.step, forward
  step,           // a range that is one iteration: ProfilerStep#3, a run of ONNX Runtime
  call,           // into the runtime or the driver: cudaLaunchKernel, hipMemcpyAsync
  captured,       // an operator, or what is around it, of a graph's capture (CapturedKernel)
  kernel,
  copy,
  fill,
};
[[nodiscard]] constexpr bool is_device(TraceEventKind kind) {
  return kind >= TraceEventKind::kernel;
}

struct TraceEvent {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  // Pairs a call with what it put on the device; of an operator the id that an execution trace
  // knows it by (execution_trace.h). 0: none.
  int64_t correlation = 0;
  int64_t external_id = 0;  // pairs an operator with its calls and kernels; 0: none
  uint32_t name = kNone;
  // Of an operator its shapes and types, of a call the kernel that it launches (ROCm says), of a
  // kernel the collective that it is, its size and process group.
  uint32_t detail = kNone;
  uint32_t track = kNone;
  TraceEventKind kind = TraceEventKind::host_operator;

  [[nodiscard]] int64_t end_ns() const { return start_ns + duration_ns; }
};

// A host thread, or a stream of a device.
struct TraceTrack {
  std::string process;  // of a host thread its process, of a stream its device
  std::string thread;
  bool is_device = false;
};

// A wait between streams as the profiler saw it: what `correlation` waits for is all that was put
// on a stream before the call that recorded an event there.
struct TraceWait {
  int64_t correlation = 0;         // of the waiting call
  int64_t record_correlation = 0;  // of the call that recorded the event; 0: not known
  int64_t stream = -1;             // that waits; -1: the host does
  int64_t wait_on_stream = -1;     // that is waited for; -1: not known
  int64_t device = -1;
};

// A kernel of a graph, and the operator that launched it when the graph was captured: an event of
// its own, before the begin of the trace.
struct CapturedKernel {
  uint32_t kernel = kNone;
  uint32_t operation = kNone;
};

struct TraceDevice {
  std::string name;
  int64_t memory_bytes = 0;
  int64_t multiprocessors = 0;
};

// A place in the file that could not be read.
struct TraceFault {
  std::string place;  // "byte 120" of the unpacked document
  std::string message;
};

struct Trace {
  std::string file;
  std::string format;  // "Kineto", "ONNX Runtime": for people
  std::vector<TraceEvent> events;
  Names names;
  std::vector<TraceTrack> tracks;
  std::vector<TraceWait> waits;
  std::vector<CapturedKernel> captured;  // none where no capture was joined
  std::vector<TraceDevice> devices;
  int64_t rank = -1;  // of a distributed run; -1: not said
  int64_t world_size = -1;
  bool is_rocm = false;
  bool has_stacks = false;  // Python stacks were recorded, which makes the host slower

  int64_t records = 0;      // events in the file, those included that are not kept
  int64_t fault_count = 0;  // places that could not be read, of which `faults` has the first
  std::vector<TraceFault> faults;
  bool is_cut = false;  // the file ended before its events did
  // It ended before the list of devices, which its writer put behind the events.
  bool lacks_devices = false;
  // Else the file says how long each took, and not when: what the times here have to say is
  // durations, and who is within whom.
  bool has_starts = true;

  [[nodiscard]] std::string_view name_of(const TraceEvent& event) const {
    return names.at(event.name);
  }
  // The stream that a device event ran on. REQUIRES: a device event.
  [[nodiscard]] const std::string& stream_of(const TraceEvent& event) const {
    return tracks[event.track].thread;
  }
};

}  // namespace headroom::formats
