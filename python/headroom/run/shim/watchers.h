// Who is told of requests: the profiler, observers of out-of-memory, trackers, and the tracer of
// torch.cuda._sanitizer. None of it costs more than a look while nobody watches.
#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "figures.h"

namespace headroom::shim {

using c10::CachingDeviceAllocator::AllocatorTraceTracker;
using c10::CachingDeviceAllocator::TraceEntry;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;

struct Totals {
  size_t allocated = 0;
  size_t reserved = 0;
};

inline Totals totals_of(CUDAAllocator& native, c10::DeviceIndex device) {
  const headroom_statistics s = our_statistics(device);
  const DeviceStats theirs = native.getDeviceStats(device);
  constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
  return {static_cast<size_t>(s.allocated_bytes.current + theirs.allocated_bytes[kAll].current),
          static_cast<size_t>(s.reserved_bytes.current + theirs.reserved_bytes[kAll].current)};
}

// While it lives, what the native allocator tells the profiler of this thread has our totals in it;
// and that it has no memory is kept back, as it may be asked again once we have given ours back.
// Only reports of memory may be made meanwhile: the profiler itself is hidden behind it.
class SummedReports {
 public:
  SummedReports() {
    auto* const inner = static_cast<c10::MemoryReportingInfoBase*>(
        c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE));
    if (inner != nullptr && inner->memoryProfilingEnabled()) {
      guard_.emplace(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Summing>(inner));
    }
  }

 private:
  struct Summing final : c10::MemoryReportingInfoBase {
    explicit Summing(c10::MemoryReportingInfoBase* to) : inner(to) {}
    void reportMemoryUsage(void* pointer, int64_t bytes, size_t allocated, size_t reserved,
                           c10::Device device) override {
      const headroom_statistics s = our_statistics(device.index());
      inner->reportMemoryUsage(pointer, bytes,
                               allocated + static_cast<size_t>(s.allocated_bytes.current),
                               reserved + static_cast<size_t>(s.reserved_bytes.current), device);
    }
    void reportOutOfMemory(int64_t, size_t, size_t, c10::Device) override {}
    bool memoryProfilingEnabled() const override { return true; }
    c10::MemoryReportingInfoBase* inner;
  };
  std::optional<c10::DebugInfoGuard> guard_;
};

class Watchers {
 public:
  void add(OutOfMemoryObserver observer) {
    const std::lock_guard lock(mutex_);
    observers_.push_back(std::move(observer));
  }
  void add(AllocatorTraceTracker tracker) {
    const std::lock_guard lock(mutex_);
    trackers_.push_back(std::move(tracker));
    has_trackers_ = true;
  }

  bool any() const {
    return has_trackers_.load(std::memory_order_relaxed) ||
           c10::impl::GPUTrace::get_trace() != nullptr || c10::memoryProfilingEnabled();
  }

  // A block of ours: bytes above 0 came, below 0 went.
  void tell(CUDAAllocator& native, void* pointer, int64_t bytes, c10::DeviceIndex device,
            cudaStream_t stream) {
    if (c10::memoryProfilingEnabled()) {
      const Totals totals = totals_of(native, device);
      c10::reportMemoryUsageToProfiler(pointer, bytes, totals.allocated, totals.reserved,
                                       c10::Device(c10::kCUDA, device));
    }
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    if (const c10::impl::PyInterpreter* const tracer = c10::impl::GPUTrace::get_trace()) {
      bytes > 0 ? (*tracer)->trace_gpu_memory_allocation(c10::kCUDA, address)
                : (*tracer)->trace_gpu_memory_deallocation(c10::kCUDA, address);
    }
    const auto action = bytes > 0 ? TraceEntry::ALLOC : TraceEntry::FREE_REQUESTED;
    track(action, device, address, static_cast<size_t>(bytes > 0 ? bytes : -bytes), stream);
  }

  void track_out_of_memory(size_t bytes, c10::DeviceIndex device, cudaStream_t stream) {
    int64_t free = 0;
    int64_t total = 0;
    ours.memory_info(device, &free, &total);
    track(TraceEntry::OOM, device, static_cast<size_t>(free), bytes, stream);
  }

  // `limit`: the share of the device that this process may have.
  void tell_out_of_memory(CUDAAllocator& native, size_t bytes, c10::DeviceIndex device,
                          double limit) {
    int64_t free = 0;
    int64_t total = 0;
    ours.memory_info(device, &free, &total);
    const Totals totals = totals_of(native, device);
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), totals.allocated, totals.reserved,
                                     c10::Device(c10::kCUDA, device));
    std::vector<OutOfMemoryObserver> observers;
    {
      const std::lock_guard lock(mutex_);
      observers = observers_;
    }
    // Called without the lock: an observer may ask for memory.
    const auto allowed = static_cast<size_t>(static_cast<double>(total) * limit);
    for (const OutOfMemoryObserver& observer : observers) {
      observer(device, bytes, allowed, static_cast<size_t>(free));
    }
  }

 private:
  void track(TraceEntry::Action action, c10::DeviceIndex device, size_t address, size_t bytes,
             cudaStream_t stream) {
    if (!has_trackers_.load(std::memory_order_relaxed)) return;
    const TraceEntry entry(action, device, address, bytes, stream, c10::MempoolId_t{0, 0},
                           c10::getApproximateTime());
    const std::lock_guard lock(mutex_);
    for (const AllocatorTraceTracker& tracker : trackers_) tracker(entry);
  }

  std::mutex mutex_;
  std::atomic<bool> has_trackers_{false};
  std::vector<OutOfMemoryObserver> observers_;
  std::vector<AllocatorTraceTracker> trackers_;
};

}  // namespace headroom::shim
