// In libc10_cuda.so's place: the few symbols of it that the shim and PyTorch's headers need, and a
// native allocator that writes down what it is asked. Its memory is the fake driver's: what it
// holds is taken from the same device, so that the two allocators can fill it up together.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace stand_in {

using namespace c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;
using Filter = std::function<bool(cudaStream_t)>;

struct Block {
  MempoolId_t pool{0, 0};
  DeviceIndex device = 0;
  size_t bytes = 0;
  bool is_live = false;
};

struct State : AllocatorState {
  MempoolId_t pool;
  std::set<void*> live;
};

class Native final : public CUDAAllocator {
 public:
  // By name, in order: what tests ask for.
  std::vector<std::string> calls;
  std::vector<OomRejectionObserver> rejections;
  std::map<void*, std::vector<cudaStream_t>> streams;
  std::map<DeviceIndex, double> fractions;

  [[nodiscard]] int64_t called(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return std::count(calls.begin(), calls.end(), name);
  }
  [[nodiscard]] bool owns(void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(pointer);
    return found != blocks_.end() && found->second.is_live;
  }

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(size_t bytes) override { return raw_alloc_with_stream(bytes, nullptr); }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  void init(int devices) override;
  bool initialized() override { return devices_ > 0; }
  double getMemoryFraction(DeviceIndex device) override { return fractions[device]; }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    check(device);
    fractions[device] = fraction;
  }
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override { return {}; }
  void enable(bool value) override { is_enabled_ = value; }
  bool isEnabled() const override { return is_enabled_; }
  void cacheInfo(DeviceIndex, size_t*) override { note("cacheInfo"); }
  void* getBaseAllocation(void* pointer, size_t* bytes) override;
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override;
  SnapshotInfo snapshot(MempoolId_t pool, bool with_traces) override;
  void emptyCache(MempoolId_t pool) override;
  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, Filter filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override;
  void markCaptureBegin(DeviceIndex) override { note("markCaptureBegin"); }
  void markCaptureEnd(DeviceIndex) override { note("markCaptureEnd"); }
  void releasePool(DeviceIndex, MempoolId_t) override { note("releasePool"); }
  int getPoolUseCount(DeviceIndex, MempoolId_t) override { return 7; }
  void createOrIncrefPool(DeviceIndex, MempoolId_t, std::shared_ptr<CUDAAllocator>) override {
    note("createOrIncrefPool");
  }
  void setUseOnOOM(DeviceIndex, MempoolId_t pool, bool value) override;
  void setNoSplit(DeviceIndex, MempoolId_t) override { note("setNoSplit"); }
  bool checkPoolLiveAllocations(DeviceIndex, MempoolId_t,
                                const std::unordered_set<void*>& expected) override;
  ShareableHandle shareIpcHandle(void* pointer) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  bool isHistoryEnabled() override { return has_history_; }
  void recordHistory(bool enabled, CreateContextFn, size_t, RecordContext, bool,
                     const std::vector<std::string>&) override {
    has_history_ = enabled;
  }
  void attachOutOfMemoryObserver(OutOfMemoryObserver) override {
    note("attachOutOfMemoryObserver");
  }
  void attachOomRejectionObserver(OomRejectionObserver observer) override {
    rejections.push_back(std::move(observer));
  }
  void attachAllocatorTraceTracker(AllocatorTraceTracker) override {
    note("attachAllocatorTraceTracker");
  }
  void enablePeerAccess(DeviceIndex, DeviceIndex) override { note("enablePeerAccess"); }
  cudaError_t memcpyAsync(void*, int, const void*, int, size_t, cudaStream_t, bool) override;
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex, MempoolId_t pool) override;
  CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                         std::shared_ptr<AllocatorState> state) override;
  std::string name() override { return "native"; }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  void note(const char* name) {
    const std::lock_guard lock(mutex_);
    calls.emplace_back(name);
  }
  void check(DeviceIndex device) const {
    TORCH_CHECK(device >= 0 && device < devices_, "no such device");
  }
  void* try_take(size_t bytes, DeviceIndex device, MempoolId_t pool);
  void release_cached(DeviceIndex device);

  std::mutex mutex_;
  int devices_ = 0;
  bool is_enabled_ = true;
  bool has_history_ = false;
  struct Begun {
    DeviceIndex device;
    MempoolId_t pool;
    Filter filter;
  };
  std::vector<Begun> begun_;
  std::vector<MempoolId_t> reserves_;
  std::map<void*, Block> blocks_;
  std::map<DeviceIndex, DeviceStats> statistics_;
};

// The one that is in place before an exchange.
Native& native();
void set_device(DeviceIndex device);
void set_stream(cudaStream_t stream);
// Copies that named both devices.
int64_t peer_copies();

}  // namespace stand_in
