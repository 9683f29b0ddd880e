#include "runtime/event_queue.h"

#include <utility>

namespace headroom::runtime {

CudaEvent* EventQueue::take_event() {
  if (!spare_.empty()) {
    CudaEvent* const event = spare_.back();
    spare_.pop_back();
    return event;
  }
  CudaEvent* event = nullptr;
  return driver_.event_create(&event, kEventDisableTiming) == kCudaSuccess ? event : nullptr;
}

void EventQueue::add(int64_t address, const std::vector<CudaStream*>& streams, bool is_capturing,
                     const Complete& complete) {
  const std::lock_guard lock(mutex_);
  waiting_.fetch_add(1, std::memory_order_acq_rel);
  outstanding_[address] = streams.size();
  for (CudaStream* const stream : streams) {
    if (is_capturing) {
      deferred_.push_back({address, stream});
    } else {
      record(address, stream, complete);
    }
  }
}

// Where an event cannot be had or recorded, the host waits for all work instead; where it may not
// wait either, all is tried again at the next poll.
void EventQueue::record(int64_t address, CudaStream* stream, const Complete& complete) {
  CudaEvent* const event = take_event();
  if (event != nullptr && driver_.event_record(event, stream) == kCudaSuccess) {
    queues_[stream].push_back({address, event});
    return;
  }
  if (event != nullptr) spare_.push_back(event);
  if (is_capture_error(driver_.context_synchronize())) {
    deferred_.push_back({address, stream});
  } else {
    happened(address, complete);
  }
}

void EventQueue::record_deferred(const Complete& complete) {
  for (const Deferred& deferred : std::exchange(deferred_, {})) {
    record(deferred.address, deferred.stream, complete);
  }
}

void EventQueue::happened(int64_t address, const Complete& complete) {
  const auto at = outstanding_.find(address);
  if (--at->second > 0) return;
  outstanding_.erase(at);
  waiting_.fetch_sub(1, std::memory_order_acq_rel);
  complete(address);
}

void EventQueue::poll_locked(const Complete& complete, bool waits) {
  record_deferred(complete);
  for (auto& [stream, queue] : queues_) {
    while (!queue.empty()) {
      const Waiting first = queue.front();
      const CudaResult result =
          waits ? driver_.event_synchronize(first.event) : driver_.event_query(first.event);
      const bool was_captured = result == kCudaCapturedEvent;  // it will never happen: another one
      if (result == kCudaNotReady || (is_capture_error(result) && !was_captured)) break;
      queue.pop_front();
      spare_.push_back(first.event);
      if (was_captured) {
        deferred_.push_back({first.address, stream});
      } else {
        happened(first.address, complete);
      }
    }
  }
}

void EventQueue::poll(const Complete& complete) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) poll_locked(complete, false);
}

void EventQueue::drain(const Complete& complete) {
  const std::lock_guard lock(mutex_);
  poll_locked(complete, true);
}

}  // namespace headroom::runtime
