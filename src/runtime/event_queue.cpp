#include "runtime/event_queue.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace headroom::runtime {

CudaEvent* EventQueue::take_event(CudaContext* context) {
  std::vector<CudaEvent*>& spare = spare_[context];
  if (!spare.empty()) {
    CudaEvent* const event = spare.back();
    spare.pop_back();
    return event;
  }
  CudaEvent* event = nullptr;
  return driver_.event_create(&event, kEventDisableTiming) == kCudaSuccess ? event : nullptr;
}

void EventQueue::add(int64_t address, const std::vector<StreamUse>& streams,
                     const Complete& complete) {
  const std::lock_guard lock(mutex_);
  waiting_.fetch_add(1, std::memory_order_acq_rel);
  outstanding_[address] = streams.size();
  const bool is_later = is_capturing();
  for (const StreamUse& use : streams) {
    if (is_later) {
      deferred_.push_back({address, use});
    } else {
      record(address, use, complete);
    }
  }
}

CudaResult EventQueue::record_in(CudaContext* context, int64_t address, CudaStream* stream) {
  std::optional<DriverScope> there;
  if (context != context_) there.emplace(driver_, context);
  CudaEvent* const event = take_event(context);
  if (event == nullptr) return kCudaOutOfMemory;
  const CudaResult result = driver_.event_record(event, stream);
  if (result == kCudaSuccess) {
    queues_[{stream, context}].push_back({address, event});
  } else {
    spare_[context].push_back(event);
  }
  return result;
}

// Where an event cannot be had or recorded, the host waits for all work of the stream's device
// instead; where it may not wait either, all is tried again at the next poll.
void EventQueue::record(int64_t address, const StreamUse& use, const Complete& complete) {
  CudaContext* context = use.context != nullptr ? use.context : context_;
  CudaResult result = record_in(context, address, use.stream);
  CudaContext* streams_own = nullptr;
  if (result != kCudaSuccess && !is_capture_error(result) && use.stream != nullptr &&
      driver_.stream_context(use.stream, &streams_own) == kCudaSuccess && streams_own != nullptr &&
      streams_own != context) {
    context = streams_own;
    result = record_in(context, address, use.stream);
  }
  if (result == kCudaSuccess) return;
  std::optional<DriverScope> there;
  if (context != context_) there.emplace(driver_, context);
  if (is_capture_error(driver_.context_synchronize())) {
    deferred_.push_back({address, use});
  } else {
    happened(address, complete);
  }
}

void EventQueue::record_deferred(const Complete& complete) {
  for (const Deferred& deferred : std::exchange(deferred_, {})) {
    record(deferred.address, deferred.use, complete);
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
  for (auto& [use, queue] : queues_) {
    while (!queue.empty()) {
      const Waiting first = queue.front();
      const CudaResult result =
          waits ? driver_.event_synchronize(first.event) : driver_.event_query(first.event);
      const bool was_captured = result == kCudaCapturedEvent;  // it will never happen: another one
      if (result == kCudaNotReady || (is_capture_error(result) && !was_captured)) break;
      queue.pop_front();
      spare_[use.context].push_back(first.event);
      if (was_captured) {
        deferred_.push_back({first.address, use});
      } else {
        happened(first.address, complete);
      }
    }
  }
}

bool EventQueue::is_captured(CudaStream* stream) const {
  int status = 0;
  return is_capturing() || driver_.stream_is_capturing(stream, &status) != kCudaSuccess ||
         status != 0;
}

std::vector<CudaEvent*> EventQueue::record_all(const std::vector<CudaStream*>& streams) {
  const std::lock_guard lock(mutex_);
  std::vector<CudaEvent*> events;
  for (CudaStream* const stream : streams) {
    CudaEvent* const event = is_captured(stream) ? nullptr : take_event(context_);
    if (event != nullptr) events.push_back(event);
    if (event != nullptr && driver_.event_record(event, stream) == kCudaSuccess) continue;
    spare_[context_].insert(spare_[context_].end(), events.begin(), events.end());
    return {};
  }
  return events;
}

bool EventQueue::join(CudaStream* waits, const std::vector<CudaEvent*>& events) {
  const std::lock_guard lock(mutex_);
  // Within a capture a wait for what is outside of it would end the capture.
  if (is_captured(waits)) return false;
  return std::all_of(events.begin(), events.end(), [&](CudaEvent* event) {
    return driver_.stream_wait_event(waits, event, 0) == kCudaSuccess;
  });
}

void EventQueue::give_back(const std::vector<CudaEvent*>& events) {
  const std::lock_guard lock(mutex_);
  spare_[context_].insert(spare_[context_].end(), events.begin(), events.end());
}

void EventQueue::poll(const Complete& complete) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && !is_capturing()) poll_locked(complete, false);
}

void EventQueue::drain(const Complete& complete) {
  const std::lock_guard lock(mutex_);
  if (!is_capturing()) poll_locked(complete, true);
}

}  // namespace headroom::runtime
