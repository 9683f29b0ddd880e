#include "stand_in.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/fake/fake_cuda.h"

namespace stand_in {
namespace {

thread_local DeviceIndex current_device = 0;
thread_local cudaStream_t current_stream = nullptr;
std::atomic<int64_t> copies_between_peers{0};
constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
constexpr size_t kPage = size_t{2} << 20;
constexpr int64_t kMemory = int64_t{64} << 20;  // of each device, as the tests set it up

void release_block(void* pointer) { native().raw_delete(pointer); }
void release_uncached(void* pointer) { std::free(pointer); }

size_t rounded(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Native& native() {
  static Native* const one = new Native;
  return *one;
}
void set_device(DeviceIndex device) { current_device = device; }
void set_stream(cudaStream_t stream) { current_stream = stream; }
int64_t peer_copies() { return copies_between_peers; }

void Native::init(int devices) {
  note("init");
  devices_ = devices;
  for (int device = 0; device < devices; ++device) fractions[static_cast<DeviceIndex>(device)] = 1;
}

c10::DataPtr Native::allocate(size_t bytes) {
  if (!is_enabled_) {
    void* const block = std::malloc(bytes);
    return {block, block, &release_uncached, c10::Device(c10::kCUDA, current_device)};
  }
  void* const block = raw_alloc(bytes);
  return {block, block, &release_block, c10::Device(c10::kCUDA, current_device)};
}

c10::DeleterFnPtr Native::raw_deleter() const {
  return is_enabled_ ? &release_block : &release_uncached;
}

// REQUIRES: the lock. Whole pages, each request its own; a cached one of the same size first.
void* Native::try_take(size_t bytes, DeviceIndex device, MempoolId_t pool) {
  for (auto& [pointer, block] : blocks_) {
    if (!block.is_live && block.pool == pool && block.device == device &&
        block.bytes == rounded(bytes)) {
      block.is_live = true;
      return pointer;
    }
  }
  const auto wanted = static_cast<int64_t>(rounded(bytes));
  const auto held = statistics_[device].reserved_bytes[kAll].current;
  if (static_cast<double>(held + wanted) > fractions[device] * static_cast<double>(kMemory)) {
    return nullptr;
  }
  if (headroom_fake_used_bytes(device) + wanted > kMemory) return nullptr;
  headroom_fake_occupy(device, wanted);
  statistics_[device].reserved_bytes[kAll].increase(rounded(bytes));
  void* const pointer = std::malloc(rounded(bytes));
  blocks_[pointer] = {pool, device, rounded(bytes), true};
  return pointer;
}

void* Native::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  const DeviceIndex device = current_device;
  std::unique_lock lock(mutex_);
  MempoolId_t pool{0, 0};
  for (const Begun& begun : begun_) {
    if (begun.device == device && begun.filter(stream)) pool = begun.pool;
  }
  void* pointer = try_take(bytes, device, pool);
  for (const MempoolId_t& reserve : reserves_) {
    if (pointer == nullptr) pointer = try_take(bytes, device, reserve);
  }
  DeviceStats& s = statistics_[device];
  const auto allocated = static_cast<size_t>(s.allocated_bytes[kAll].current);
  const auto reserved = static_cast<size_t>(s.reserved_bytes[kAll].current);
  if (pointer == nullptr) {
    ++s.num_ooms;
    lock.unlock();
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), allocated, reserved,
                                     c10::Device(c10::kCUDA, device));
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate (native)");
  }
  s.allocation[kAll].increase(1);
  s.allocated_bytes[kAll].increase(rounded(bytes));
  const auto now = static_cast<size_t>(s.allocated_bytes[kAll].current);
  const auto held = static_cast<size_t>(s.reserved_bytes[kAll].current);
  lock.unlock();
  c10::reportMemoryUsageToProfiler(pointer, static_cast<int64_t>(rounded(bytes)), now, held,
                                   c10::Device(c10::kCUDA, device));
  return pointer;
}

void Native::raw_delete(void* pointer) {
  std::unique_lock lock(mutex_);
  const auto found = blocks_.find(pointer);
  TORCH_CHECK(found != blocks_.end() && found->second.is_live, "invalid device pointer: ", pointer);
  Block& block = found->second;
  block.is_live = false;
  DeviceStats& s = statistics_[block.device];
  s.allocation[kAll].decrease(1);
  s.allocated_bytes[kAll].decrease(block.bytes);
  const auto bytes = static_cast<int64_t>(block.bytes);
  const auto now = static_cast<size_t>(s.allocated_bytes[kAll].current);
  const auto held = static_cast<size_t>(s.reserved_bytes[kAll].current);
  const c10::Device device(c10::kCUDA, block.device);
  lock.unlock();
  c10::reportMemoryUsageToProfiler(pointer, -bytes, now, held, device);
}

void* Native::getBaseAllocation(void* pointer, size_t* bytes) {
  TORCH_CHECK(owns(pointer), "invalid device pointer: ", pointer);
  const std::lock_guard lock(mutex_);
  *bytes = blocks_[pointer].bytes;
  return pointer;
}

void Native::recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) {
  if (block.get_deleter() != &release_block) return;
  const std::lock_guard lock(mutex_);
  streams[block.get()].push_back(stream.stream());
}

SnapshotInfo Native::snapshot(MempoolId_t pool, bool) {
  const std::lock_guard lock(mutex_);
  SnapshotInfo info;
  info.config_metadata.last_allocator_settings = "native";
  for (const auto& [pointer, block] : blocks_) {
    if (pool != MempoolId_t{0, 0} && pool != block.pool) continue;
    SegmentInfo segment;
    segment.device = block.device;
    segment.address = reinterpret_cast<size_t>(pointer);
    segment.total_size = block.bytes;
    segment.owner_private_pool_id = block.pool;
    info.segments.push_back(segment);
  }
  return info;
}

// REQUIRES: the lock.
void Native::release_cached(DeviceIndex device) {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    if (block->second.is_live || block->second.device != device) {
      ++block;
      continue;
    }
    headroom_fake_occupy(device, -static_cast<int64_t>(block->second.bytes));
    statistics_[device].reserved_bytes[kAll].decrease(block->second.bytes);
    std::free(block->first);
    block = blocks_.erase(block);
  }
}

void Native::emptyCache(MempoolId_t) {
  note("emptyCache");
  const std::lock_guard lock(mutex_);
  for (int device = 0; device < devices_; ++device)
    release_cached(static_cast<DeviceIndex>(device));
}

DeviceStats Native::getDeviceStats(DeviceIndex device) {
  check(device);
  const std::lock_guard lock(mutex_);
  return statistics_[device];
}

void Native::resetAccumulatedStats(DeviceIndex device) {
  check(device);
  const std::lock_guard lock(mutex_);
  for (auto* const figure : {&statistics_[device].allocation, &statistics_[device].allocated_bytes,
                             &statistics_[device].reserved_bytes}) {
    (*figure)[kAll].reset_accumulated();
  }
  statistics_[device].num_ooms = 0;
}

void Native::resetPeakStats(DeviceIndex device) {
  check(device);
  const std::lock_guard lock(mutex_);
  for (auto* const figure : {&statistics_[device].allocation, &statistics_[device].allocated_bytes,
                             &statistics_[device].reserved_bytes}) {
    (*figure)[kAll].reset_peak();
  }
}

void Native::beginAllocateToPool(DeviceIndex device, MempoolId_t pool, Filter filter) {
  check(device);
  note("beginAllocateToPool");
  const std::lock_guard lock(mutex_);
  begun_.push_back({device, pool, std::move(filter)});
}

void Native::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  const std::lock_guard lock(mutex_);
  begun_.erase(std::remove_if(begun_.begin(), begun_.end(),
                              [&](const Begun& begun) {
                                return begun.device == device && begun.pool == pool;
                              }),
               begun_.end());
}

void Native::setUseOnOOM(DeviceIndex, MempoolId_t pool, bool) { reserves_.push_back(pool); }

bool Native::checkPoolLiveAllocations(DeviceIndex, MempoolId_t pool,
                                      const std::unordered_set<void*>& expected) {
  const std::lock_guard lock(mutex_);
  std::unordered_set<void*> live;
  for (const auto& [pointer, block] : blocks_) {
    if (block.pool == pool && block.is_live) live.insert(pointer);
  }
  return live == expected;
}

ShareableHandle Native::shareIpcHandle(void* pointer) {
  TORCH_CHECK(owns(pointer), "invalid device pointer: ", pointer);
  return {0, "handle"};
}

std::shared_ptr<void> Native::getIpcDevPtr(std::string handle) {
  return std::make_shared<std::string>(handle);
}

cudaError_t Native::memcpyAsync(void*, int, const void*, int, size_t, cudaStream_t, bool) {
  note("memcpyAsync");
  return cudaSuccess;
}

std::shared_ptr<AllocatorState> Native::getCheckpointState(DeviceIndex, MempoolId_t pool) {
  const std::lock_guard lock(mutex_);
  auto state = std::make_shared<State>();
  state->pool = pool;
  for (const auto& [pointer, block] : blocks_) {
    if (block.pool == pool && block.is_live) state->live.insert(pointer);
  }
  return state;
}

// All of the pool is freed, and what lived then is made again.
CheckpointDelta Native::setCheckpointPoolState(DeviceIndex device,
                                               std::shared_ptr<AllocatorState> state) {
  const auto saved = std::dynamic_pointer_cast<State>(state);
  TORCH_CHECK(saved != nullptr, "not a state of this allocator");
  const std::lock_guard lock(mutex_);
  CheckpointDelta delta;
  for (auto& [pointer, block] : blocks_) {
    if (block.pool != saved->pool) continue;
    DeviceStats& s = statistics_[block.device];
    if (block.is_live) {
      delta.ptrs_freed.push_back(pointer);
      s.allocation[kAll].decrease(1);
      s.allocated_bytes[kAll].decrease(block.bytes);
    }
    block.is_live = saved->live.count(pointer) != 0;
    if (block.is_live) {
      s.allocation[kAll].increase(1);
      s.allocated_bytes[kAll].increase(block.bytes);
      delta.dataptrs_allocd.emplace_back(pointer, pointer, &release_block,
                                         c10::Device(c10::kCUDA, device));
    }
  }
  return delta;
}

}  // namespace stand_in

// What libc10_cuda.so and libcudart.so have.

namespace c10 {

C10_DEFINE_REGISTRY(FreeCudaMemoryCallbacksRegistry, FreeMemoryCallback)

namespace cuda {

cudaError_t GetDevice(DeviceIndex* device) {
  *device = stand_in::current_device;
  return cudaSuccess;
}

cudaStream_t CUDAStream::stream() const {
  return reinterpret_cast<cudaStream_t>(static_cast<intptr_t>(stream_.id()));
}

CUDAStream getCurrentCUDAStream(DeviceIndex) {
  const Device device(kCUDA, stand_in::current_device);
  const auto id = reinterpret_cast<intptr_t>(stand_in::current_stream);
  return CUDAStream(CUDAStream::UNCHECKED, Stream(Stream::UNSAFE, device, id));
}

void c10_cuda_check_implementation(int32_t error, const char*, const char*, uint32_t, bool) {
  TORCH_CHECK(error == 0, "CUDA error ", error);
}

namespace CUDACachingAllocator {
std::atomic<CUDAAllocator*> allocator{&stand_in::native()};
}
}  // namespace cuda
}  // namespace c10

// For tests in Python (tests/python/stand_in): what torch._C asks of whatever allocator is in
// place.
namespace {
thread_local std::string last_refusal;
}

extern "C" {

void stand_in_set_device(int device) {
  stand_in::set_device(static_cast<c10::DeviceIndex>(device));
}
void stand_in_init(int devices) { c10::cuda::CUDACachingAllocator::init(devices); }
void stand_in_empty_cache() { c10::cuda::CUDACachingAllocator::emptyCache(); }
void stand_in_set_memory_fraction(double fraction, int device) {
  c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction,
                                                     static_cast<c10::DeviceIndex>(device));
}
const char* stand_in_backend() {
  thread_local std::string name;
  name = c10::cuda::CUDACachingAllocator::name();
  return name.c_str();
}
const char* stand_in_refusal() { return last_refusal.c_str(); }
// Null where it was refused: stand_in_refusal() says why.
void* stand_in_alloc(size_t bytes, void* stream) {
  try {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
        bytes, static_cast<cudaStream_t>(stream));
  } catch (const c10::Error& error) {
    last_refusal = error.what_without_backtrace();
    return nullptr;
  }
}
void stand_in_delete(void* pointer) { c10::cuda::CUDACachingAllocator::raw_delete(pointer); }
// Allocated and reserved bytes: current, peak, of all.
void stand_in_statistics(int device, int64_t figures[4]) {
  const auto s =
      c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  figures[0] = s.allocated_bytes[0].current;
  figures[1] = s.allocated_bytes[0].peak;
  figures[2] = s.reserved_bytes[0].current;
  figures[3] = s.reserved_bytes[0].peak;
}
void stand_in_reset_peak(int device) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
}
// use_mem_pool: of every stream of this device.
void stand_in_pool(int device, int is_begun) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  if (is_begun != 0) {
    c10::cuda::CUDACachingAllocator::createOrIncrefPool(index, {0, 3});
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(index, {0, 3},
                                                         [](cudaStream_t) { return true; });
  } else {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(index, {0, 3});
  }
}
int stand_in_native_owns(void* pointer) { return stand_in::native().owns(pointer) ? 1 : 0; }

cudaError_t cudaMemGetInfo(size_t*, size_t*) { return cudaErrorNotSupported; }
cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, size_t, cudaStream_t) {
  ++stand_in::copies_between_peers;
  return cudaSuccess;
}
}
