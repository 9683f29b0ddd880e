// The shim: libheadroom_torch.so behind PyTorch's own C++ interface of allocators, for the callers
// that its C interface for other allocators refuses (docs/run.md). One translation unit, compiled
// by headroom/run/shim against the installed PyTorch, and used with that very one alone: the stamp
// says which it is, and headroom_shim_install() refuses another.
#include "allocator.h"

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

static_assert(TORCH_VERSION_MAJOR == HEADROOM_TORCH_MAJOR &&
                  TORCH_VERSION_MINOR == HEADROOM_TORCH_MINOR,
              "these headers are of another PyTorch than the one that runs");
// A later class may ask more by a virtual function with a default, which compiles and is wrong.
#ifndef HEADROOM_SHIM_ANY_TORCH
static_assert(
    TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11 && TORCH_VERSION_MINOR <= 13,
    "the shim was tried with PyTorch 2.11 to 2.13 alone; HEADROOM_SHIM_ANY_TORCH=1 in the "
    "environment compiles it all the same, at your own risk");
#endif

namespace headroom::shim {
namespace {

constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
constexpr size_t kMostBytes = size_t{1} << 60;

DeviceIndex current_device() {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

cudaStream_t current_stream(DeviceIndex device) {
  return c10::cuda::getCurrentCUDAStream(device).stream();
}

}  // namespace

void Allocator::init(int devices) {
  native_.init(devices);
  ours.init(devices);
  devices_ = std::max(devices_.load(), devices);
}

// ---- Requests

c10::DataPtr Allocator::allocate(size_t bytes) {
  if (!native_.isEnabled()) return native_.allocate(bytes);
  const DeviceIndex device = current_device();
  void* const block = bytes == 0 ? nullptr : take(bytes, device, current_stream(device));
  return {block, block, &release, c10::Device(c10::kCUDA, device)};
}

c10::DeleterFnPtr Allocator::raw_deleter() const {
  return native_.isEnabled() ? &release : native_.raw_deleter();
}

void* Allocator::raw_alloc(size_t bytes) {
  const DeviceIndex device = current_device();
  return bytes == 0 ? nullptr : take(bytes, device, current_stream(device));
}

void* Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  return bytes == 0 ? nullptr : take(bytes, current_device(), stream);
}

void* Allocator::take(size_t bytes, DeviceIndex device, cudaStream_t stream) {
  last_device_ = device;
  if (pools_.take(device, stream)) return take_native(bytes, device, stream);
  const auto asked = static_cast<ssize_t>(std::min(bytes, kMostBytes));
  void* const block = ours.malloc(asked, device, stream);
  if (C10_UNLIKELY(block == nullptr)) return take_last_reserve(bytes, device, stream);
  if (C10_UNLIKELY(watchers_.any())) {
    watchers_.tell(native_, block, (asked + 511) / 512 * 512, device, stream);
  }
  return block;
}

// Ours has no memory: a pool may be there for that (MemPool's use_on_oom), which the native one
// knows.
void* Allocator::take_last_reserve(size_t bytes, DeviceIndex device, cudaStream_t stream) {
  std::string words = ours.error();
  std::string theirs;
  void* block = nullptr;
  if (has_reserve_pools_) {
    ++not_out_of_memory_[static_cast<size_t>(device)];
    block = ask_native(bytes, device, stream, theirs);
  }
  if (block == nullptr) {
    watchers_.track_out_of_memory(bytes, device, stream);
    refuse(bytes, device, words);
  }
  return block;
}

// Null where it has no memory, and then `words` are its own; the exception is not let through, as
// ours may give some back.
void* Allocator::ask_native(size_t bytes, DeviceIndex device, cudaStream_t stream,
                            std::string& words) {
  const SummedReports reports;
  limits_.divide(native_, device);
  try {
    void* const block = native_.raw_alloc_with_stream(bytes, stream);
    limits_.divide(native_, device);
    return block;
  } catch (const c10::OutOfMemoryError& error) {
    words = error.what_without_backtrace();
    return nullptr;
  }
}

void* Allocator::take_native(size_t bytes, DeviceIndex device, cudaStream_t stream) {
  std::string words;
  void* block = ask_native(bytes, device, stream, words);
  if (block != nullptr) return block;
  const int64_t before = our_statistics(device).reserved_bytes.current;
  pools_.empty_our_cache();
  if (our_statistics(device).reserved_bytes.current < before) {
    ++not_out_of_memory_[static_cast<size_t>(device)];
    block = ask_native(bytes, device, stream, words);
  }
  if (block == nullptr) refuse(bytes, device, words);
  return block;
}

void Allocator::refuse(size_t bytes, DeviceIndex device, const std::string& words) {
  watchers_.tell_out_of_memory(native_, bytes, device, limits_.of(device));
  TORCH_CHECK_WITH(OutOfMemoryError, false, words);
}

// Asked by ours before it says that there is no memory.
int Allocator::when_memory_is_wanted(int64_t, int device, void*) noexcept {
  try {
    return instance_->give_back_what_pools_cached(static_cast<DeviceIndex>(device)) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

bool Allocator::give_back_what_pools_cached(DeviceIndex device) {
  bool is_some = false;
  for (const std::string& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    is_some |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  if (!native_.initialized()) return is_some;
  if (pools_.any_begun()) {
    pools_.empty_our_cache();  // which ours itself may not have done
    return true;
  }
  const auto reserved = [&] { return native_.getDeviceStats(device).reserved_bytes[kAll].current; };
  const int64_t before = reserved();
  if (before != 0) native_.emptyCache({0, 0});
  limits_.divide(native_, device);
  return is_some || reserved() < before;
}

// ---- Releases

void Allocator::give(void* pointer) {
  if (pointer == nullptr) return;
  const DeviceIndex device = last_device_;
  const bool is_watched = watchers_.any();
  // Of a block that is gone nobody knows where it was.
  const int where = C10_UNLIKELY(is_watched) ? ours.device_of(pointer) : device;
  const int64_t bytes = ours.release(pointer, device);
  if (bytes == 0) {
    const SummedReports reports;
    native_.raw_delete(pointer);
  } else if (C10_UNLIKELY(is_watched && bytes > 0 && where >= 0)) {
    watchers_.tell(native_, pointer, -bytes, static_cast<DeviceIndex>(where), nullptr);
  }
}

void Allocator::raw_delete(void* pointer) { give(pointer); }

void Allocator::recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) {
  // A tensor that another process shares is kept by its own means.
  if (block.get() == nullptr || block.get_deleter() != &release) return;
  if (is_ours(block.get())) {
    ours.record_stream(block.get(), stream.stream());
    return;
  }
  c10::DataPtr theirs(block.get(), block.get(), native_.raw_deleter(), block.device());
  struct Keep {
    c10::DataPtr& block;
    ~Keep() { block.release_context(); }
  } keep{theirs};
  native_.recordStream(theirs, stream);
}

void Allocator::emptyCache(MempoolId_t pool) {
  if (pool == MempoolId_t{0, 0}) pools_.empty_our_cache();
  native_.emptyCache(pool);
  for (int device = 0; device < devices_; ++device) {
    limits_.divide(native_, static_cast<DeviceIndex>(device));
  }
}

// Where the devices do not reach each other's memory, pages that are mapped can be copied by the
// call that names both devices alone. Memory of any other kind can, too: so nobody has to know
// whose it is, which is known of the beginnings of blocks only, and copies begin anywhere in them.
cudaError_t Allocator::memcpyAsync(void* to, int to_device, const void* from, int from_device,
                                   size_t bytes, cudaStream_t stream, bool has_peer_access) {
  if (!has_peer_access && to_device != from_device) {
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }
  return native_.memcpyAsync(to, to_device, from, from_device, bytes, stream, has_peer_access);
}

// ---- Figures

DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
  DeviceStats sum = native_.getDeviceStats(device);
  add(sum, our_statistics(device));
  const int64_t twice = not_out_of_memory_[static_cast<size_t>(device)];
  sum.num_ooms = std::max<int64_t>(sum.num_ooms - twice, 0);
  return sum;
}

void Allocator::resetAccumulatedStats(DeviceIndex device) {
  native_.resetAccumulatedStats(device);
  not_out_of_memory_[static_cast<size_t>(device)] = 0;
  ours.reset_accumulated_statistics(device);
}

void Allocator::resetPeakStats(DeviceIndex device) {
  native_.resetPeakStats(device);
  ours.reset_peak_statistics(device);
}

void Allocator::cacheInfo(DeviceIndex device, size_t* largest) {
  int64_t free = 0;
  int64_t total = 0;
  if (*largest == 0 && ours.memory_info(device, &free, &total) == 0) {
    *largest = static_cast<size_t>(free);
  }
  *largest = std::max(*largest, static_cast<size_t>(ours.largest_free_block(device)));
}

std::pair<size_t, size_t> Allocator::getMemoryInfo(DeviceIndex device) {
  int64_t free = 0;
  int64_t total = 0;
  TORCH_CHECK(ours.memory_info(device, &free, &total) == 0, ours.error());
  return {static_cast<size_t>(free), static_cast<size_t>(total)};
}

void* Allocator::getBaseAllocation(void* pointer, size_t* bytes) {
  void* const base = ours.get_base_allocation(pointer, bytes);
  return base != nullptr ? base : native_.getBaseAllocation(pointer, bytes);
}

torch_cuda::SnapshotInfo Allocator::snapshot(MempoolId_t pool, bool with_traces) {
  torch_cuda::SnapshotInfo info = native_.snapshot(pool, with_traces);
  if (pool == MempoolId_t{0, 0}) {
    for (int device = 0; device < devices_; ++device) add_segments(info.segments, device);
  }
  return info;
}

// ---- Pools

c10::DataPtr Allocator::as_ours(c10::DataPtr block) const {
  const bool is_known = block.compare_exchange_deleter(native_.raw_deleter(), &release);
  TORCH_CHECK(is_known, "PyTorch's allocator gave a block with a deleter that is not its own");
  return block;
}

torch_cuda::CheckpointDelta Allocator::setCheckpointPoolState(
    DeviceIndex device, std::shared_ptr<torch_cuda::AllocatorState> state) {
  torch_cuda::CheckpointDelta delta = native_.setCheckpointPoolState(device, std::move(state));
  for (at::DataPtr& block : delta.dataptrs_allocd) block = as_ours(std::move(block));
  return delta;
}

torch_cuda::ShareableHandle Allocator::shareIpcHandle(void* pointer) {
  TORCH_CHECK(
      !is_ours(pointer),
      "not available under headroom run: a CUDA tensor that Headroom allocated lies in "
      "mapped pages, for which PyTorch has no handle that another process could open. One "
      "that was made under torch.cuda.use_mem_pool can be shared; `headroom run --off` runs "
      "it with PyTorch's own allocator");
  return native_.shareIpcHandle(pointer);
}

// ---- The exchange

namespace {

thread_local std::string last_error;

int fail(std::string words) {
  last_error = std::move(words);
  return -1;
}

}  // namespace
}  // namespace headroom::shim

#define HEADROOM_SHIM_EXPORT extern "C" __attribute__((visibility("default")))

// Which PyTorch, libheadroom_torch.so and compiler's library it was compiled for.
HEADROOM_SHIM_EXPORT const char* headroom_shim_stamp() { return HEADROOM_SHIM_STAMP; }
HEADROOM_SHIM_EXPORT const char* headroom_shim_error() {
  return headroom::shim::last_error.c_str();
}

// 0, or -1: then nothing was changed, and headroom_shim_error() says why. Final. Makes no CUDA
// call. `stamp` is of the PyTorch that runs; `library` is the libheadroom_torch.so that is loaded.
HEADROOM_SHIM_EXPORT int headroom_shim_install(const char* library, const char* stamp) {
  using headroom::shim::fail;
  namespace torch_cuda = c10::cuda::CUDACachingAllocator;
  if (std::string(stamp) != HEADROOM_SHIM_STAMP) {
    return fail(std::string("it was compiled for ") + HEADROOM_SHIM_STAMP + ", and this is " +
                stamp);
  }
  if (std::string missing = headroom::shim::ours.find(library); !missing.empty()) {
    return fail(std::move(missing));
  }
  torch_cuda::CUDAAllocator* const native = torch_cuda::allocator.load();
  if (native == nullptr || native->name() != "native")
    return fail("PyTorch's allocator is not its own");
  if (native->initialized()) return fail("CUDA was used before");
  auto* const shim = new headroom::shim::Allocator(*native);  // for ever
  torch_cuda::allocator.store(shim);
  c10::SetAllocator(c10::kCUDA, shim);
  return 0;
}
