// EventQueue: blocks that were released while other streams still used them, until the events that
// were recorded on those streams have happened.
//
// One queue a stream, in order, so that only the oldest event of each is asked for. During a graph
// capture nothing is recorded or asked: what is released then waits until captures are over. So
// does what the driver refuses because of a capture that we were not told of. A driver that refuses
// otherwise (the process is ending) counts as done with everything.
// Has a lock of its own; the other locks of device_allocator.h are taken inside it, never around.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/driver.h"

namespace headroom::runtime {

class EventQueue {
 public:
  explicit EventQueue(const Driver& driver) : driver_(driver) {}

  // What waits is named by the address of the block.
  using Complete = std::function<void(int64_t address)>;

  [[nodiscard]] bool is_empty() const { return waiting_.load(std::memory_order_acquire) == 0; }
  // REQUIRES: a DriverScope, unless `is_capturing`; at least one stream.
  void add(int64_t address, const std::vector<CudaStream*>& streams, bool is_capturing,
           const Complete& complete);
  // Calls `complete` for each block whose events have all happened. Nothing where another thread is
  // at it. REQUIRES: a DriverScope; no capture.
  void poll(const Complete& complete);
  // Waits for all of them. REQUIRES: the same.
  void drain(const Complete& complete);

 private:
  struct Waiting {
    int64_t address = 0;
    CudaEvent* event = nullptr;
  };
  struct Deferred {
    int64_t address = 0;
    CudaStream* stream = nullptr;
  };
  void record(int64_t address, CudaStream* stream, const Complete& complete);
  void record_deferred(const Complete& complete);
  void happened(int64_t address, const Complete& complete);
  void poll_locked(const Complete& complete, bool waits);
  CudaEvent* take_event();

  const Driver& driver_;
  std::mutex mutex_;
  std::atomic<int64_t> waiting_ = 0;  // blocks
  std::map<CudaStream*, std::deque<Waiting>> queues_;
  std::map<int64_t, size_t> outstanding_;  // by address: streams that may use it
  std::vector<Deferred> deferred_;
  std::vector<CudaEvent*> spare_;
};

}  // namespace headroom::runtime
