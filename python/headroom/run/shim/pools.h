// The pools that requests are taken to at this moment: begun, and not ended.
//
// Every pool belongs to the native allocator: it alone can save and restore its state (graph
// trees), count its uses and take memory from an allocator of the user's own (MemPool). So a plain
// graph's pool lies there, too: whether a pool will be asked for its state is not known when it
// begins, and what a graph captured may not move, which leaves nothing to plan.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "ours.h"

namespace headroom::shim {

using c10::DeviceIndex;
using c10::MempoolId_t;
using Filter = std::function<bool(cudaStream_t)>;

class Pools {
 public:
  // A pool may be a capture's, which begins after this call and before anybody says so: from here
  // on nothing may happen that a capture forbids.
  void begin(DeviceIndex device, MempoolId_t id, Filter filter) {
    const std::lock_guard lock(mutex_);
    ours.capture_begin(device);
    begun_.push_back({device, id, std::move(filter)});
    count_.store(begun_.size(), std::memory_order_release);
  }

  void end(DeviceIndex device, MempoolId_t id) {
    const std::lock_guard lock(mutex_);
    const auto pool = std::find_if(begun_.begin(), begun_.end(), [&](const Begun& begun) {
      return begun.device == device && begun.id == id;
    });
    if (pool == begun_.end()) return;
    ours.capture_end(device);
    begun_.erase(pool);
    count_.store(begun_.size(), std::memory_order_release);
  }

  // Is a request of this thread, on this stream, one for a pool?
  bool take(DeviceIndex device, cudaStream_t stream) {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard lock(mutex_);
    return std::any_of(begun_.begin(), begun_.end(), [&](const Begun& pool) {
      return pool.device == device && (!pool.filter || pool.filter(stream));
    });
  }
  bool any_begun() const { return count_.load(std::memory_order_acquire) != 0; }

  // Our cache goes back to the device though a pool is begun: what begin() forbade, in case, is
  // allowed meanwhile. Not during a capture that has been marked, which counts by itself.
  void empty_our_cache() {
    const std::lock_guard lock(mutex_);
    for (const Begun& pool : begun_) ours.capture_end(pool.device);
    ours.empty_cache();
    for (const Begun& pool : begun_) ours.capture_begin(pool.device);
  }

 private:
  struct Begun {
    DeviceIndex device;
    MempoolId_t id;
    Filter filter;
  };
  std::mutex mutex_;
  std::atomic<size_t> count_{0};
  std::vector<Begun> begun_;
};

}  // namespace headroom::shim
