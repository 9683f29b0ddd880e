// The C ABI: each function finds its device and says what failed; nothing is decided here.
#include "runtime/abi.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "base/version.h"
#include "runtime/memory_wanted.h"
#include "runtime/runtime.h"

using headroom::runtime::CudaStream;
using headroom::runtime::DeviceAllocator;
using headroom::runtime::PoolId;
using headroom::runtime::Runtime;

namespace {

CudaStream* stream_of(void* stream) { return static_cast<CudaStream*>(stream); }

// The device that is named first, then all others that are open, until one says yes.
template <typename Ask>
bool any_device(int first, Ask&& ask) {
  Runtime& runtime = Runtime::get();
  if (DeviceAllocator* const device = runtime.open_device(first)) {
    if (ask(*device)) return true;
  }
  for (int i = 0; i < Runtime::kMostDevices; ++i) {
    DeviceAllocator* const device = i == first ? nullptr : runtime.open_device(i);
    if (device != nullptr && ask(*device)) return true;
  }
  return false;
}

// One device, or all that are open where it is negative.
template <typename Do>
void for_devices(int device, Do&& what) {
  for (int i = 0; i < Runtime::kMostDevices; ++i) {
    if (device >= 0 && i != device) continue;
    if (DeviceAllocator* const known = Runtime::get().open_device(i)) what(*known);
  }
}

int64_t copy_text(const std::string& text, char* buffer, int64_t capacity) {
  if (buffer != nullptr && capacity > 0) {
    const size_t bytes = std::min(text.size(), static_cast<size_t>(capacity - 1));
    std::memcpy(buffer, text.data(), bytes);
    buffer[bytes] = 0;
  }
  return static_cast<int64_t>(text.size());
}

// Apart, so that headroom_malloc has nothing to destroy when the handler throws through it.
[[gnu::noinline]] void* try_allocate(ssize_t size, int device, void* stream, bool& is_full) {
  DeviceAllocator* const known = Runtime::get().device(device);
  if (known == nullptr) {
    is_full = true;
    return nullptr;
  }
  std::string message;
  void* const pointer = known->allocate(size, stream_of(stream), message);
  if (pointer == nullptr) {
    is_full = true;
    Runtime::set_error(message);
  }
  return pointer;
}

// The bytes of the block that the pointer was; 0 where it was none of any device.
int64_t release_at(void* pointer, int device) {
  DeviceAllocator* const likely = Runtime::get().open_device(device);
  int64_t bytes = likely == nullptr ? 0 : likely->free_planned(pointer);
  if (bytes != 0) [[likely]]
    return bytes;
  any_device(device, [&](DeviceAllocator& known) {
    bytes = known.free(pointer);
    return bytes != 0;
  });
  return bytes;
}

}  // namespace

extern "C" {

int headroom_abi_version(void) { return HEADROOM_RUNTIME_ABI_VERSION; }
const char* headroom_version(void) { return headroom::version().data(); }

void* headroom_malloc(ssize_t size, int device, void* stream) {
  if (size <= 0) return nullptr;
  if (DeviceAllocator* const known = Runtime::get().open_device(device)) [[likely]] {
    void* const planned = known->allocate_planned(size, stream_of(stream));
    if (planned != nullptr) [[likely]]
      return planned;
  }
  bool is_full = false;
  void* const pointer = try_allocate(size, device, stream, is_full);
  if (is_full) Runtime::get().tell_out_of_memory(device);
  return pointer;
}

void headroom_free(void* pointer, ssize_t, int device, void*) {
  if (pointer == nullptr || release_at(pointer, device) != 0) return;
  for_devices(device, [](DeviceAllocator& known) { known.count_unknown_free(); });
}

void headroom_init(int) {}

void headroom_reset(void) {
  for_devices(-1, [](DeviceAllocator& known) { known.empty_cache(); });
}

void headroom_set_memory_fraction(double fraction, int device) {
  Runtime::get().set_memory_fraction(fraction, device);
}

double headroom_get_memory_fraction(int device) { return Runtime::get().memory_fraction(device); }

void* headroom_get_base_allocation(void* pointer, size_t* size) {
  void* base = nullptr;
  any_device(0, [&](DeviceAllocator& known) {
    const auto piece = known.base_allocation(pointer);
    if (!piece) return false;
    base = reinterpret_cast<void*>(static_cast<uintptr_t>(piece->address));
    if (size != nullptr) *size = static_cast<size_t>(piece->bytes);
    return true;
  });
  return base;
}

void headroom_record_stream(void* pointer, void* stream) {
  if (pointer == nullptr) return;
  any_device(
      0, [&](DeviceAllocator& known) { return known.record_stream(pointer, stream_of(stream)); });
}

void headroom_pool_begin(int device, uint64_t first, uint64_t second, headroom_stream_filter filter,
                         void* context) {
  DeviceAllocator* const known = Runtime::get().device(device);
  if (known == nullptr) return;
  DeviceAllocator::Filter takes;
  if (filter != nullptr) {
    takes = [filter, context](CudaStream* stream) { return filter(stream, context) != 0; };
  }
  known->begin_pool(PoolId{first, second}, std::move(takes));
}

void headroom_pool_end(int device, uint64_t first, uint64_t second) {
  if (DeviceAllocator* const known = Runtime::get().open_device(device)) {
    known->end_pool(PoolId{first, second});
  }
}

void headroom_pool_release(int device, uint64_t first, uint64_t second) {
  if (DeviceAllocator* const known = Runtime::get().open_device(device)) {
    known->release_pool(PoolId{first, second});
  }
}

// PyTorch's own signatures (c10::cuda::MempoolId_t, torch/csrc/cuda/CUDAPluggableAllocator.h of
// PyTorch 2.13).
using TorchPoolId = std::pair<unsigned long long, unsigned long long>;

HEADROOM_EXPORT void headroom_begin_allocate_to_pool(int device, TorchPoolId id,
                                                     std::function<bool(CudaStream*)> filter) {
  if (DeviceAllocator* const known = Runtime::get().device(device)) {
    known->begin_pool(PoolId{id.first, id.second}, std::move(filter));
  }
}

HEADROOM_EXPORT void headroom_end_allocate_to_pool(int device, TorchPoolId id) {
  headroom_pool_end(device, id.first, id.second);
}

HEADROOM_EXPORT void headroom_release_pool(int device, TorchPoolId id) {
  headroom_pool_release(device, id.first, id.second);
}

uint64_t headroom_event_recorded(int device, void* stream) {
  DeviceAllocator* const known = Runtime::get().open_device(device);
  return known == nullptr ? 0 : known->record_event(stream_of(stream));
}

void headroom_event_waited(int device, void* stream, uint64_t event) {
  if (DeviceAllocator* const known = Runtime::get().open_device(device)) {
    known->wait_event(stream_of(stream), event);
  }
}

void headroom_forbid_joins(void) { Runtime::get().forbid_joins(); }

void headroom_on_out_of_memory(headroom_out_of_memory_handler handler, void* context) {
  Runtime::get().set_out_of_memory_handler(handler, context);
}

int64_t headroom_release(void* pointer, int device) {
  if (pointer == nullptr) return 0;
  return Runtime::get().is_forked() ? -1 : release_at(pointer, device);
}

int headroom_device_of(void* pointer) {
  int device = -1;
  if (pointer == nullptr) return device;
  any_device(0, [&](DeviceAllocator& known) {
    if (known.is_live(pointer)) device = known.ordinal();
    return device >= 0;
  });
  return device;
}

int64_t headroom_largest_free_block(int device) {
  DeviceAllocator* const known = Runtime::get().open_device(device);
  return known == nullptr ? 0 : known->largest_free_block();
}

void headroom_capture_begin(int device) {
  if (DeviceAllocator* const known = Runtime::get().device(device)) known->begin_capture();
}

void headroom_capture_end(int device) {
  if (DeviceAllocator* const known = Runtime::get().open_device(device)) known->end_capture();
}

void headroom_on_memory_wanted(headroom_memory_wanted_handler handler, void* context) {
  headroom::runtime::MemoryWanted::set(handler, context);
}

void headroom_visit_segments(int device, headroom_segment_visitor visit, void* context) {
  DeviceAllocator* const known = Runtime::get().open_device(device);
  if (known != nullptr) known->visit_segments(visit, context);
}

int headroom_configure(const headroom_configuration* configuration) {
  if (configuration == nullptr) {
    Runtime::set_error("headroom_configure: no configuration");
    return -1;
  }
  auto parsed = headroom::runtime::configuration_from(*configuration);
  if (!parsed) {
    Runtime::set_error(parsed.error().to_string());
    return -1;
  }
  const auto done = Runtime::get().configure(*parsed);
  if (!done) Runtime::set_error(done.error().to_string());
  return done ? 0 : -1;
}

const char* headroom_error(void) { return Runtime::error(); }

int headroom_probe_driver(void) {
  const auto found = Runtime::get().probe_driver();
  if (!found) Runtime::set_error(found.error().to_string());
  return found ? 0 : -1;
}

void headroom_iteration(int device) {
  for_devices(device, [](DeviceAllocator& known) { known.iteration(); });
}

void headroom_expect_iterations(void) { Runtime::get().expect_iterations(); }

int headroom_get_statistics(int device, headroom_statistics* statistics) {
  headroom_statistics whole{};
  const size_t bytes = std::min<size_t>(statistics->struct_bytes, sizeof whole);
  DeviceAllocator* const known = Runtime::get().open_device(device);
  if (known != nullptr) known->read(whole);
  whole.struct_bytes = static_cast<uint32_t>(bytes);
  std::memcpy(statistics, &whole, bytes);
  return known == nullptr ? -1 : 0;
}

void headroom_reset_peak_statistics(int device) {
  for_devices(device, [](DeviceAllocator& known) { known.reset_peaks(); });
}

void headroom_reset_accumulated_statistics(int device) {
  for_devices(device, [](DeviceAllocator& known) { known.reset_accumulated(); });
}

int headroom_memory_info(int device, int64_t* free_bytes, int64_t* total_bytes) {
  DeviceAllocator* const known = Runtime::get().device(device);
  if (known == nullptr) return -1;
  const auto info = known->memory_info();
  *total_bytes = info.total_bytes;
  if (!info.is_known) {
    Runtime::set_error("the driver does not say how much memory is free (cuMemGetInfo)");
    return -1;
  }
  *free_bytes = info.free_bytes;
  return 0;
}

int64_t headroom_report(char* buffer, int64_t capacity) {
  return copy_text(Runtime::get().report_json(), buffer, capacity);
}

int64_t headroom_snapshot(int device, char* buffer, int64_t capacity) {
  DeviceAllocator* const known = Runtime::get().open_device(device);
  return copy_text(known == nullptr ? "[]" : known->snapshot_json(), buffer, capacity);
}

void headroom_finish(void) { Runtime::get().finish(); }

}  // extern "C"
