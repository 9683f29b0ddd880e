// EventQueue: blocks that were released while other streams still used them, until the events that
// were recorded on those streams have happened.
//
// One queue a stream, in order, so that only the oldest event of each is asked for. During a graph
// capture nothing is recorded or asked: what is released then waits until captures are over. So
// does what the driver refuses because of a capture that we were not told of. A driver that refuses
// otherwise (the process is ending) counts as done with everything.
// Beside those it records events that a stream is made to wait for (planned_arena.h, joins), and
// says whether a stream is captured. Streams may be of another device than the block: an event is
// made where its stream is, as the driver records it nowhere else. Has a lock of its own; the other
// locks of device_allocator.h are taken inside it, never around.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/driver.h"

namespace headroom::runtime {

// A stream that uses a block. `context`: of the device whose default stream is meant; null where it
// is the block's own device, or the stream itself says so.
struct StreamUse {
  CudaStream* stream = nullptr;
  CudaContext* context = nullptr;
  auto operator<=>(const StreamUse&) const = default;
};

class EventQueue {
 public:
  // `context` is the device's own; `captures` is above 0 while somebody captures.
  EventQueue(const Driver& driver, CudaContext* context, const std::atomic<int>& captures)
      : driver_(driver), context_(context), captures_(captures) {}

  // What waits is named by the address of the block.
  using Complete = std::function<void(int64_t address)>;

  [[nodiscard]] bool is_empty() const { return waiting_.load(std::memory_order_acquire) == 0; }
  // REQUIRES: a DriverScope; at least one stream.
  void add(int64_t address, const std::vector<StreamUse>& streams, const Complete& complete);
  // Is it being captured, by a capture that we were told of or another one? Also where the driver
  // does not say. REQUIRES: a DriverScope.
  [[nodiscard]] bool is_captured(CudaStream* stream) const;
  // Calls `complete` for each block whose events have all happened. Nothing where another thread is
  // at it, or somebody captures. REQUIRES: a DriverScope.
  void poll(const Complete& complete);
  // Waits for all of them. REQUIRES: the same.
  void drain(const Complete& complete);
  // Events behind all that each stream was given so far, for join(); none where that cannot be, as
  // somebody captures. REQUIRES: a DriverScope; streams of this device.
  [[nodiscard]] std::vector<CudaEvent*> record_all(const std::vector<CudaStream*>& streams);
  // The stream waits for them; false where it may not. REQUIRES: the same.
  bool join(CudaStream* waits, const std::vector<CudaEvent*>& events);
  // They are not needed any more.
  void give_back(const std::vector<CudaEvent*>& events);
  // Returns once no thread is at work here that has not seen `captures` as it is now.
  void await_others() { const std::lock_guard lock(mutex_); }

 private:
  struct Waiting {
    int64_t address = 0;
    CudaEvent* event = nullptr;
  };
  struct Deferred {
    int64_t address = 0;
    StreamUse use;
  };
  void record(int64_t address, const StreamUse& use, const Complete& complete);
  CudaResult record_in(CudaContext* context, int64_t address, CudaStream* stream);
  void record_deferred(const Complete& complete);
  void happened(int64_t address, const Complete& complete);
  void poll_locked(const Complete& complete, bool waits);
  CudaEvent* take_event(CudaContext* context);
  [[nodiscard]] bool is_capturing() const { return captures_.load(std::memory_order_acquire) > 0; }

  const Driver& driver_;
  CudaContext* const context_;
  const std::atomic<int>& captures_;
  std::mutex mutex_;
  std::atomic<int64_t> waiting_ = 0;                 // blocks
  std::map<StreamUse, std::deque<Waiting>> queues_;  // with the context that its events are of
  std::map<int64_t, size_t> outstanding_;            // by address: streams that may use it
  std::vector<Deferred> deferred_;
  std::map<CudaContext*, std::vector<CudaEvent*>> spare_;
};

}  // namespace headroom::runtime
