// PyTorch's CUDAAllocator over two: ours, which serves every request but those that are for a pool,
// and the native one that was there before, which serves those (pools.h).
//
// Invariants:
//  1. A live block belongs to exactly one of the two, and its release goes to that one, found by
//     the address; who asked for it, where, and what is begun by then plays no part.
//  2. Every DataPtr that leaves here has raw_deleter() for its deleter, whoever serves it: graph
//     trees compare them. It is taken for the native one's own before that one looks at it.
//  3. Where one has no memory left, what the other has cached is given back before anyone is told.
//  4. No lock of ours is held while the native allocator is called.
//
// Leaked on purpose: tensors are freed while the process ends. Thread-safe, as both of the two are.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>

#include "fractions.h"
#include "pools.h"
#include "watchers.h"

namespace headroom::shim {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

// Before 2.13 the class is not told what is a capture and what another use of a pool, and PyTorch's
// own takes every pool that is begun for one; so do we: while one is, what ours has cached stays.
constexpr bool kSaysWhatIsCaptured = HEADROOM_TORCH_MINOR >= 13;

class Allocator final : public torch_cuda::CUDAAllocator {
 public:
  explicit Allocator(torch_cuda::CUDAAllocator& native) : native_(native) {
    instance_ = this;
    ours.on_memory_wanted(&Allocator::when_memory_is_wanted, nullptr);
  }

  // ---- Requests and releases

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override;
  void emptyCache(MempoolId_t pool = {0, 0}) override;
  void copy_data(void* to, const void* from, size_t bytes) const override {
    native_.copy_data(to, from, bytes);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool has_peer_access) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override {
    native_.enablePeerAccess(device, peer);  // our pages are mapped for every peer
  }

  // ---- State

  void init(int devices) override;
  bool initialized() override { return native_.initialized(); }
  // Without caching (torch.cuda.memory.caching_allocator_enable) the native one asks the driver.
  void enable(bool value) override { native_.enable(value); }
  bool isEnabled() const override { return native_.isEnabled(); }
  std::string name() override { return "headroom"; }
  double getMemoryFraction(DeviceIndex device) override { return limits_.of(device); }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    limits_.set(native_, fraction, device);
  }

  // ---- Figures

  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  void cacheInfo(DeviceIndex device, size_t* largest) override;
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override;
  void* getBaseAllocation(void* pointer, size_t* bytes) override;
  torch_cuda::SnapshotInfo snapshot(MempoolId_t pool = {0, 0}, bool with_traces = true) override;
  std::vector<torch_cuda::StreamSegmentSize> getExpandableSegmentSizes(
      DeviceIndex device) override {
    return native_.getExpandableSegmentSizes(device);
  }

  // ---- Pools: the native allocator's

  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, Filter filter) override {
    native_.beginAllocateToPool(device, pool, filter);  // refuses what is begun already
    if (!kSaysWhatIsCaptured) ours.capture_begin(device);
    pools_.begin(device, pool, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    pools_.end(device, pool);
    native_.endAllocateToPool(device, pool);
    if (!kSaysWhatIsCaptured) ours.capture_end(device);
  }
#if HEADROOM_TORCH_MINOR >= 13
  void markCaptureBegin(DeviceIndex device) override {
    ours.capture_begin(device);
    native_.markCaptureBegin(device);
  }
  void markCaptureEnd(DeviceIndex device) override {
    native_.markCaptureEnd(device);
    ours.capture_end(device);
  }
#endif
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    native_.releasePool(device, pool);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return native_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<torch_cuda::CUDAAllocator> from = nullptr) override {
    native_.createOrIncrefPool(device, pool, std::move(from));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool value) override {
    native_.setUseOnOOM(device, pool, value);
    if (value) has_reserve_pools_ = true;
  }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override {
    native_.setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return native_.checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<torch_cuda::AllocatorState> getCheckpointState(DeviceIndex device,
                                                                 MempoolId_t pool) override {
    return native_.getCheckpointState(device, pool);
  }
  torch_cuda::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<torch_cuda::AllocatorState> state) override;
#if HEADROOM_TORCH_MINOR >= 13
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return as_ours(native_.allocateWithAddress(bytes, address));
  }
#endif

  // ---- Between processes. What another process shares is opened by the driver, for which it does
  // not matter who allocates here. Our own memory is pages of many handles, for which PyTorch has
  // no form; that of a pool can be shared.

  torch_cuda::ShareableHandle shareIpcHandle(void* pointer) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return native_.getIpcDevPtr(std::move(handle));
  }

  // ---- History: of what lies in pools. `headroom run --record` keeps ours.

  bool isHistoryEnabled() override { return native_.isHistoryEnabled(); }
  void recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t most,
                     torch_cuda::RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override {
    native_.recordHistory(enabled, recorder, most, when, clear, skipped);
  }
#if HEADROOM_TORCH_MINOR >= 12
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override {
    return is_ours(pointer) ? nullptr : native_.getContextForPointer(pointer);
  }
#endif
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& md) override {
    native_.recordAnnotation(md);
  }
  void pushCompileContext(std::string& md) override { native_.pushCompileContext(md); }
  void popCompileContext() override { native_.popCompileContext(); }
  void setUserMetadata(const std::string& md) override { native_.setUserMetadata(md); }
  std::string getUserMetadata() override { return native_.getUserMetadata(); }

  // ---- Observers. That of a rejection is for a setting of the native allocator's alone. A tracker
  // sees our blocks come and go, and of segments those of pools.

  void attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) override {
    watchers_.add(std::move(observer));
  }
#if HEADROOM_TORCH_MINOR >= 12
  void attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) override {
    native_.attachOomRejectionObserver(std::move(observer));
  }
#endif
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    native_.attachAllocatorTraceTracker(tracker);
    watchers_.add(std::move(tracker));
  }

 private:
  void* take(size_t bytes, DeviceIndex device, cudaStream_t stream);
  void* take_native(size_t bytes, DeviceIndex device, cudaStream_t stream);
  void* ask_native(size_t bytes, DeviceIndex device, cudaStream_t stream, std::string& words);
  void* take_last_reserve(size_t bytes, DeviceIndex device, cudaStream_t stream);
  [[noreturn]] void refuse(size_t bytes, DeviceIndex device, const std::string& words);
  void give(void* pointer);
  bool give_back_what_pools_cached(DeviceIndex device);
  static int when_memory_is_wanted(int64_t bytes, int device, void* context) noexcept;
  c10::DataPtr as_ours(c10::DataPtr block) const;
  static bool is_ours(const void* pointer) {
    return ours.device_of(const_cast<void*>(pointer)) >= 0;
  }
  static void release(void* pointer) { instance_->give(pointer); }

  static inline Allocator* instance_ = nullptr;
  static inline thread_local DeviceIndex last_device_ = 0;  // where a release looks first

  torch_cuda::CUDAAllocator& native_;
  Pools pools_;
  Fractions limits_;
  Watchers watchers_;
  std::atomic<int> devices_{0};
  std::atomic<bool> has_reserve_pools_{false};
  // Refusals of one that the other made good, or was asked about again: no request was refused.
  std::array<std::atomic<int64_t>, 128> not_out_of_memory_{};
};

}  // namespace headroom::shim
