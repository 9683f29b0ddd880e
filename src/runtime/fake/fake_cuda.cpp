#include "runtime/fake/fake_cuda.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "runtime/driver.h"

namespace headroom::runtime {
namespace {

struct Physical {
  int device = 0;
  int64_t bytes = 0;
  int64_t file_offset = 0;
  int mappings = 0;
  bool is_released = false;
};
struct Mapping {
  int64_t bytes = 0;
  CudaHandle handle = 0;  // 0: of cuMemAlloc
};
struct Work {
  CudaStream* stream = nullptr;
  int64_t due = 0;
  uint64_t address = 0;
  int64_t bytes = 0;
};
struct Failure {
  int64_t after = 0;
  int64_t times = 0;
  CudaResult error = 0;
};
struct Device {
  int64_t used = 0;
  int64_t understated = 0;
  int file = -1;
  int64_t file_end = 0;
  std::map<int64_t, std::vector<int64_t>> vacant;  // size to offsets in the file
};

// The whole driver. One of these, and one mutex.
struct Fake {
  std::mutex mutex;
  headroom_fake_setting setting{1, int64_t{1} << 32, int64_t{2} << 20, 0, 1, 0, 1, 1};
  bool is_set_up = false;
  std::vector<Device> devices;
  std::map<CudaHandle, Physical> handles;
  CudaHandle next_handle = 1;
  std::map<uint64_t, int64_t> reserved;                // address to bytes
  std::map<uint64_t, Mapping> mapped;                  // by address
  std::map<uint64_t, std::pair<int, Physical>> plain;  // cuMemAlloc: device and memory
  std::map<CudaStream*, int64_t> last_due;
  std::map<CudaStream*, int64_t> not_before;  // the last event that the stream was told to wait for
  std::map<CudaStream*, int> stream_devices;
  std::vector<Work> works;
  int64_t now = 0;
  int32_t captures = 0;
  std::mt19937_64 random{1};
  std::map<std::string, int64_t> calls;
  std::map<std::string, Failure> failures;
  std::map<std::string, std::pair<void (*)(void*), void*>> visitors;
  // Where cuMemMap fails.
  uint64_t bad_address = 0;
  int64_t bad_bytes = 0;
  CudaResult bad_error = 0;
  bool are_handles_shareable = false;
  bool was_handle_shareable = false;
  int last_access = 0;
  int64_t violations = 0;
  std::string first_violation;

  void violate(const std::string& what) {
    if (violations++ == 0) first_violation = what;
  }
};

Fake& fake() {
  static Fake* const instance = new Fake;  // leaked: threads outlive main
  return *instance;
}

void set_up(Fake& f, const headroom_fake_setting& setting) {
  for (Device& device : f.devices) {
    if (device.file >= 0) close(device.file);
  }
  f.setting = setting;
  f.is_set_up = true;
  f.devices.assign(static_cast<size_t>(setting.devices), Device{});
  for (Device& device : f.devices) {
    if (setting.has_host != 0) {
      device.file = memfd_create("headroom_fake_cuda", MFD_CLOEXEC);
    }
  }
  f.works.clear();
  f.last_due.clear();
  f.not_before.clear();
  f.calls.clear();
  f.failures.clear();
  f.violations = 0;
  f.first_violation.clear();
}

void set_up_from_environment(Fake& f) {
  headroom_fake_setting setting = f.setting;
  const char* text = std::getenv("HEADROOM_FAKE_CUDA");
  while (text != nullptr && *text != 0) {
    const char* const equals = std::strchr(text, '=');
    if (equals == nullptr) break;
    const std::string key(text, equals);
    char* end = nullptr;
    const int64_t value = std::strtoll(equals + 1, &end, 10);
    if (key == "devices") setting.devices = static_cast<int32_t>(value);
    if (key == "memory_mib") setting.memory_bytes = value << 20;
    if (key == "page_kib") setting.page_bytes = value << 10;
    if (key == "delay") setting.delay = value;
    if (key == "host") setting.has_host = static_cast<int32_t>(value);
    if (key == "poison") setting.poisons = static_cast<int32_t>(value);
    if (key == "virtual") setting.is_virtual = static_cast<int32_t>(value);
    if (key == "peers") setting.has_peers = static_cast<int32_t>(value);
    text = *end == ',' ? end + 1 : end;
    if (*end != ',' && *end != 0) break;
  }
  set_up(f, setting);
}

thread_local CudaContext* current_context = nullptr;

CudaContext* context_of(int device) {
  return reinterpret_cast<CudaContext*>(static_cast<uintptr_t>(device + 1));
}
int current_device() {
  return current_context == nullptr
             ? -1
             : static_cast<int>(reinterpret_cast<uintptr_t>(current_context)) - 1;
}

// Default streams are all null; but for the first device's, they have another name here.
CudaStream* default_stream(int device) {
  return device <= 0 ? nullptr : reinterpret_cast<CudaStream*>(~static_cast<uintptr_t>(device));
}
// -1: of all.
int device_of(Fake& f, CudaStream* stream) {
  const auto at = f.stream_devices.find(stream);
  return at == f.stream_devices.end() ? -1 : at->second;
}

void visit(Fake& f, const char* name) {
  std::pair<void (*)(void*), void*> visitor;
  {
    const std::lock_guard lock(f.mutex);
    const auto at = f.visitors.find(name);
    if (at == f.visitors.end()) return;
    visitor = at->second;
    f.visitors.erase(at);
  }
  visitor.first(visitor.second);
}

// Entering a call: counts it, and says with which error it is to fail.
class Call {
 public:
  explicit Call(const char* name) : f((visit(fake(), name), fake())), lock_(f.mutex) {
    if (!f.is_set_up) set_up_from_environment(f);
    ++f.calls[name];
    const auto at = f.failures.find(name);
    if (at == f.failures.end()) return;
    if (at->second.after > 0) {
      --at->second.after;
    } else if (at->second.times > 0) {
      --at->second.times;
      error = at->second.error;
    }
  }
  void forbid_in_capture(const char* what) {
    if (f.captures > 0) f.violate(std::string(what) + " during a capture");
  }
  Fake& f;
  CudaResult error = kCudaSuccess;

 private:
  std::lock_guard<std::mutex> lock_;
};

void forget_done_work(Fake& f) {
  std::erase_if(f.works, [&](const Work& work) { return work.due <= f.now; });
}

bool is_touched(Fake& f, uint64_t address, int64_t bytes) {
  return std::any_of(f.works.begin(), f.works.end(), [&](const Work& work) {
    return work.due > f.now && work.address < address + static_cast<uint64_t>(bytes) &&
           address < work.address + static_cast<uint64_t>(work.bytes);
  });
}

int64_t queue(Fake& f, CudaStream* stream) {
  int64_t& last = f.last_due[stream];
  const int64_t delay =
      f.setting.delay == 0
          ? 0
          : static_cast<int64_t>(f.random() % static_cast<uint64_t>(f.setting.delay + 1));
  last = std::max({last, f.now + delay, f.not_before[stream]});
  return last;
}

void finish_all(Fake& f) {
  for (const auto& [stream, due] : f.last_due) {
    const int device = device_of(f, stream);
    if (device < 0 || device == current_device()) f.now = std::max(f.now, due);
  }
  forget_done_work(f);
}

bool take_memory(Fake& f, int device, int64_t bytes, Physical& physical) {
  Device& where = f.devices[static_cast<size_t>(device)];
  if (bytes > f.setting.memory_bytes - where.used) return false;
  where.used += bytes;
  physical.device = device;
  physical.bytes = bytes;
  std::vector<int64_t>& vacant = where.vacant[bytes];
  if (!vacant.empty()) {
    physical.file_offset = vacant.back();
    vacant.pop_back();
    return true;
  }
  physical.file_offset = where.file_end;
  where.file_end += bytes;
  if (where.file >= 0 && ftruncate(where.file, where.file_end) != 0) std::abort();
  return true;
}

void give_memory(Fake& f, const Physical& physical) {
  Device& where = f.devices[static_cast<size_t>(physical.device)];
  where.used -= physical.bytes;
  where.vacant[physical.bytes].push_back(physical.file_offset);
  if (where.file < 0) return;
  if (f.setting.poisons != 0) {
    const std::vector<char> poison(static_cast<size_t>(physical.bytes), static_cast<char>(0xdb));
    if (pwrite(where.file, poison.data(), poison.size(), physical.file_offset) < 0) std::abort();
  } else {
    fallocate(where.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, physical.file_offset,
              physical.bytes);
  }
}

void* show(Fake& f, const Physical& physical, void* where) {
  const int file = f.devices[static_cast<size_t>(physical.device)].file;
  return mmap(where, static_cast<size_t>(physical.bytes), PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED, file, physical.file_offset);
}
void hide(uint64_t address, int64_t bytes) {
  mmap(reinterpret_cast<void*>(address), static_cast<size_t>(bytes), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

struct Event {
  int64_t due = 0;
  int device = 0;
};
Event* event_of(CudaEvent* event) { return reinterpret_cast<Event*>(event); }

}  // namespace
}  // namespace headroom::runtime

// NOLINTBEGIN(readability-identifier-naming): the driver's names.
using namespace headroom::runtime;
#define FAKE_CALL extern "C" __attribute__((visibility("default"))) CudaResult

FAKE_CALL cuInit(unsigned) { return Call("cuInit").error; }
FAKE_CALL cuDeviceGet(CudaDevice* device, int ordinal) {
  Call call("cuDeviceGet");
  if (call.error != 0) return call.error;
  if (ordinal < 0 || ordinal >= call.f.setting.devices) return 101;
  *device = ordinal;
  return kCudaSuccess;
}
FAKE_CALL cuDeviceGetCount(int* count) {
  Call call("cuDeviceGetCount");
  *count = call.f.setting.devices;
  return call.error;
}
FAKE_CALL cuDeviceGetAttribute(int* value, int attribute, CudaDevice) {
  Call call("cuDeviceGetAttribute");
  *value = 0;
  if (attribute == kAttributeVirtualMemory) *value = call.f.setting.is_virtual;
  if (attribute == kAttributeHandlesArePosixFiles ||
      attribute == kAttributeGpuDirectWithVirtualMemory) {
    *value = call.f.are_handles_shareable ? 1 : 0;
  }
  return call.error;
}
FAKE_CALL cuDeviceTotalMem_v2(size_t* bytes, CudaDevice) {
  Call call("cuDeviceTotalMem_v2");
  *bytes = static_cast<size_t>(call.f.setting.memory_bytes);
  return call.error;
}
FAKE_CALL cuDeviceCanAccessPeer(int* can, CudaDevice, CudaDevice) {
  Call call("cuDeviceCanAccessPeer");
  *can = call.f.setting.has_peers;
  return call.error;
}
FAKE_CALL cuDevicePrimaryCtxRetain(CudaContext** context, CudaDevice device) {
  Call call("cuDevicePrimaryCtxRetain");
  *context = context_of(device);
  return call.error;
}
FAKE_CALL cuCtxGetCurrent(CudaContext** context) {
  *context = current_context;
  return kCudaSuccess;
}
FAKE_CALL cuCtxSetCurrent(CudaContext* context) {
  current_context = context;
  return kCudaSuccess;
}
FAKE_CALL cuCtxSynchronize() {
  Call call("cuCtxSynchronize");
  call.forbid_in_capture("cuCtxSynchronize");
  if (call.error == 0) finish_all(call.f);
  return call.error;
}
FAKE_CALL cuStreamGetCtx(CudaStream* stream, CudaContext** context) {
  Call call("cuStreamGetCtx");
  const int device = device_of(call.f, stream);
  *context = device < 0 ? current_context : context_of(device);
  return call.error;
}
FAKE_CALL cuStreamIsCapturing(CudaStream*, int* status) {
  Call call("cuStreamIsCapturing");
  *status = call.f.captures > 0 ? 1 : 0;
  return call.error;
}
FAKE_CALL cuMemGetInfo_v2(size_t* free, size_t* total) {
  Call call("cuMemGetInfo_v2");
  const int device = current_device();
  if (device < 0) return 201;
  *total = static_cast<size_t>(call.f.setting.memory_bytes);
  const Device& where = call.f.devices[static_cast<size_t>(device)];
  const int64_t left = call.f.setting.memory_bytes - where.used - where.understated;
  *free = static_cast<size_t>(std::max<int64_t>(left, 0));
  return call.error;
}
FAKE_CALL cuMemAlloc_v2(CudaPointer* pointer, size_t bytes) {
  Call call("cuMemAlloc_v2");
  if (call.error != 0) return call.error;
  const int device = current_device();
  if (device < 0) return 201;
  // As the driver does, in whole pages.
  const int64_t page = call.f.setting.page_bytes;
  const int64_t whole = (static_cast<int64_t>(bytes) + page - 1) / page * page;
  Physical physical;
  if (!take_memory(call.f, device, whole, physical)) return kCudaOutOfMemory;
  void* const at = mmap(nullptr, static_cast<size_t>(whole + page), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) std::abort();
  const auto address = (reinterpret_cast<uint64_t>(at) + static_cast<uint64_t>(page) - 1) /
                       static_cast<uint64_t>(page) * static_cast<uint64_t>(page);
  if (call.f.setting.has_host != 0) show(call.f, physical, reinterpret_cast<void*>(address));
  call.f.plain[address] = {device, physical};
  *pointer = address;
  return kCudaSuccess;
}
FAKE_CALL cuMemFree_v2(CudaPointer pointer) {
  Call call("cuMemFree_v2");
  const auto at = call.f.plain.find(pointer);
  if (at == call.f.plain.end()) {
    call.f.violate("cuMemFree of what was not allocated");
    return kCudaInvalidValue;
  }
  if (is_touched(call.f, pointer, at->second.second.bytes)) {
    call.f.violate("cuMemFree under work that is not done");
  }
  hide(pointer, at->second.second.bytes);
  give_memory(call.f, at->second.second);
  call.f.plain.erase(at);
  return call.error;
}
FAKE_CALL cuMemGetAllocationGranularity(size_t* bytes, const CudaAllocationProperties*, int) {
  Call call("cuMemGetAllocationGranularity");
  *bytes = static_cast<size_t>(call.f.setting.page_bytes);
  return call.error;
}
FAKE_CALL cuMemAddressReserve(CudaPointer* pointer, size_t bytes, size_t, CudaPointer,
                              unsigned long long) {
  Call call("cuMemAddressReserve");
  if (call.error != 0) return call.error;
  const auto page = static_cast<size_t>(call.f.setting.page_bytes);
  void* const at =
      mmap(nullptr, bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return kCudaOutOfMemory;
  *pointer = (reinterpret_cast<uint64_t>(at) + page - 1) / page * page;
  call.f.reserved[*pointer] = static_cast<int64_t>(bytes);
  return kCudaSuccess;
}
FAKE_CALL cuMemCreate(CudaHandle* handle, size_t bytes, const CudaAllocationProperties* properties,
                      unsigned long long) {
  Call call("cuMemCreate");
  if (call.error != 0) return call.error;
  const int device = properties->location.id;
  if (bytes == 0 || static_cast<int64_t>(bytes) % call.f.setting.page_bytes != 0 || device < 0 ||
      device >= call.f.setting.devices) {
    return kCudaInvalidValue;
  }
  Physical physical;
  if (!take_memory(call.f, device, static_cast<int64_t>(bytes), physical)) return kCudaOutOfMemory;
  *handle = call.f.next_handle++;
  call.f.handles[*handle] = physical;
  call.f.was_handle_shareable =
      properties->handle_types == 1 && properties->gpu_direct_capable == 1;
  return kCudaSuccess;
}
FAKE_CALL cuMemRelease(CudaHandle handle) {
  Call call("cuMemRelease");
  const auto at = call.f.handles.find(handle);
  if (at == call.f.handles.end() || at->second.is_released) {
    call.f.violate("cuMemRelease of no handle");
    return kCudaInvalidValue;
  }
  at->second.is_released = true;
  if (at->second.mappings == 0) {
    give_memory(call.f, at->second);
    call.f.handles.erase(at);
  }
  return call.error;
}
FAKE_CALL cuMemMap(CudaPointer pointer, size_t bytes, size_t offset, CudaHandle handle,
                   unsigned long long) {
  Call call("cuMemMap");
  if (call.error != 0) return call.error;
  if (pointer - call.f.bad_address < static_cast<uint64_t>(call.f.bad_bytes)) {
    return call.f.bad_error;
  }
  const auto at = call.f.handles.find(handle);
  auto range = call.f.reserved.upper_bound(pointer);
  const auto after = call.f.mapped.lower_bound(pointer);
  const bool is_reserved =
      range != call.f.reserved.begin() &&
      pointer + bytes <= std::prev(range)->first + static_cast<uint64_t>(std::prev(range)->second);
  bool is_vacant = after == call.f.mapped.end() || after->first >= pointer + bytes;
  if (after != call.f.mapped.begin()) {
    const auto before = std::prev(after);
    is_vacant = is_vacant && before->first + static_cast<uint64_t>(before->second.bytes) <= pointer;
  }
  if (at == call.f.handles.end() || offset != 0 || !is_reserved || !is_vacant ||
      static_cast<int64_t>(bytes) != at->second.bytes) {
    call.f.violate("cuMemMap of what cannot be mapped there");
    return kCudaInvalidValue;
  }
  ++at->second.mappings;
  call.f.mapped[pointer] = {static_cast<int64_t>(bytes), handle};
  return kCudaSuccess;
}
FAKE_CALL cuMemSetAccess(CudaPointer pointer, size_t bytes, const CudaAccess*, size_t count) {
  Call call("cuMemSetAccess");
  if (call.error != 0) return call.error;
  call.f.last_access = static_cast<int>(count);
  const uint64_t end = pointer + bytes;
  for (uint64_t at = pointer; at < end;) {
    const auto mapping = call.f.mapped.find(at);
    if (mapping == call.f.mapped.end()) {
      call.f.violate("cuMemSetAccess where nothing is mapped");
      return kCudaInvalidValue;
    }
    if (call.f.setting.has_host != 0) {
      show(call.f, call.f.handles.at(mapping->second.handle), reinterpret_cast<void*>(at));
    }
    at += static_cast<uint64_t>(mapping->second.bytes);
  }
  return kCudaSuccess;
}
FAKE_CALL cuMemUnmap(CudaPointer pointer, size_t bytes) {
  Call call("cuMemUnmap");
  call.forbid_in_capture("cuMemUnmap");
  if (call.error != 0) return call.error;
  if (is_touched(call.f, pointer, static_cast<int64_t>(bytes))) {
    call.f.violate("cuMemUnmap under work that is not done");
  }
  const uint64_t end = pointer + bytes;
  for (uint64_t at = pointer; at < end;) {
    const auto mapping = call.f.mapped.find(at);
    if (mapping == call.f.mapped.end()) {
      call.f.violate("cuMemUnmap where nothing is mapped");
      return kCudaInvalidValue;
    }
    const auto handle = call.f.handles.find(mapping->second.handle);
    if (call.f.setting.has_host != 0) hide(at, mapping->second.bytes);
    at += static_cast<uint64_t>(mapping->second.bytes);
    if (--handle->second.mappings == 0 && handle->second.is_released) {
      give_memory(call.f, handle->second);
      call.f.handles.erase(handle);
    }
    call.f.mapped.erase(mapping);
  }
  return kCudaSuccess;
}
FAKE_CALL cuEventCreate(CudaEvent** event, unsigned) {
  Call call("cuEventCreate");
  if (call.error != 0) return call.error;
  *event = reinterpret_cast<CudaEvent*>(new Event{0, current_device()});
  return kCudaSuccess;
}
FAKE_CALL cuEventRecord(CudaEvent* event, CudaStream* stream) {
  Call call("cuEventRecord");
  call.forbid_in_capture("cuEventRecord");
  if (call.error != 0) return call.error;
  if (stream == nullptr) stream = default_stream(current_device());
  const int device = device_of(call.f, stream);
  if (device >= 0 && device != event_of(event)->device) return 400;  // CUDA_ERROR_INVALID_HANDLE
  ++call.f.now;
  event_of(event)->due = queue(call.f, stream);
  return kCudaSuccess;
}
FAKE_CALL cuStreamWaitEvent(CudaStream* stream, CudaEvent* event, unsigned) {
  Call call("cuStreamWaitEvent");
  call.forbid_in_capture("cuStreamWaitEvent");
  if (call.error != 0) return call.error;
  if (stream == nullptr) stream = default_stream(current_device());
  int64_t& not_before = call.f.not_before[stream];
  not_before = std::max(not_before, event_of(event)->due);
  return kCudaSuccess;
}
FAKE_CALL cuEventQuery(CudaEvent* event) {
  Call call("cuEventQuery");
  call.forbid_in_capture("cuEventQuery");
  if (call.error != 0) return call.error;
  ++call.f.now;
  return event_of(event)->due <= call.f.now ? kCudaSuccess : kCudaNotReady;
}
FAKE_CALL cuEventSynchronize(CudaEvent* event) {
  Call call("cuEventSynchronize");
  call.forbid_in_capture("cuEventSynchronize");
  call.f.now = std::max(call.f.now, event_of(event)->due);
  return call.error;
}
FAKE_CALL cuThreadExchangeStreamCaptureMode(int* mode) {
  thread_local int current = 0;
  std::swap(current, *mode);
  return kCudaSuccess;
}
FAKE_CALL cuGetErrorName(CudaResult error, const char** name) {
  *name = error == kCudaOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_FAKE";
  return kCudaSuccess;
}

#define FAKE_CONTROL extern "C" __attribute__((visibility("default")))

FAKE_CONTROL void headroom_fake_set_up(const headroom_fake_setting* setting) {
  const std::lock_guard lock(fake().mutex);
  set_up(fake(), *setting);
}
FAKE_CONTROL void headroom_fake_fail(const char* name, int64_t after, int64_t times, int error) {
  const std::lock_guard lock(fake().mutex);
  fake().failures[name] = {after, times, error};
}
FAKE_CONTROL void headroom_fake_fail_at(uint64_t address, int64_t bytes, int error) {
  const std::lock_guard lock(fake().mutex);
  fake().bad_address = address;
  fake().bad_bytes = bytes;
  fake().bad_error = error;
}
FAKE_CONTROL int64_t headroom_fake_calls(const char* name) {
  const std::lock_guard lock(fake().mutex);
  return fake().calls[name];
}
FAKE_CONTROL void headroom_fake_occupy(int device, int64_t bytes) {
  const std::lock_guard lock(fake().mutex);
  if (!fake().is_set_up) set_up_from_environment(fake());
  fake().devices[static_cast<size_t>(device)].used += bytes;
}
FAKE_CONTROL void headroom_fake_understate_free(int device, int64_t bytes) {
  const std::lock_guard lock(fake().mutex);
  fake().devices[static_cast<size_t>(device)].understated = bytes;
}
FAKE_CONTROL void headroom_fake_shareable_handles(int can_be) {
  const std::lock_guard lock(fake().mutex);
  fake().are_handles_shareable = can_be != 0;
}
FAKE_CONTROL int headroom_fake_last_handle_is_shareable(void) {
  const std::lock_guard lock(fake().mutex);
  return fake().was_handle_shareable ? 1 : 0;
}
FAKE_CONTROL int headroom_fake_last_access(void) {
  const std::lock_guard lock(fake().mutex);
  return fake().last_access;
}
FAKE_CONTROL int64_t headroom_fake_used_bytes(int device) {
  const std::lock_guard lock(fake().mutex);
  return fake().devices[static_cast<size_t>(device)].used;
}
FAKE_CONTROL void headroom_fake_stream(void* stream, int device) {
  const std::lock_guard lock(fake().mutex);
  fake().stream_devices[static_cast<CudaStream*>(stream)] = device;
}
FAKE_CONTROL void* headroom_fake_default_stream(int device) {
  if (device > 0) headroom_fake_stream(default_stream(device), device);
  return default_stream(device);
}
FAKE_CONTROL void headroom_fake_on_call(const char* name, void (*what)(void*), void* context) {
  const std::lock_guard lock(fake().mutex);
  fake().visitors[name] = {what, context};
}
FAKE_CONTROL void headroom_fake_work(void* stream, uint64_t address, int64_t bytes) {
  const std::lock_guard lock(fake().mutex);
  Fake& f = fake();
  if (f.works.size() > 4096) forget_done_work(f);
  const int64_t due = queue(f, static_cast<CudaStream*>(stream));
  if (due > f.now) f.works.push_back({static_cast<CudaStream*>(stream), due, address, bytes});
}
FAKE_CONTROL int headroom_fake_is_touched(void* stream, uint64_t address, int64_t bytes) {
  const std::lock_guard lock(fake().mutex);
  Fake& f = fake();
  const int64_t behind = std::max(f.now, f.not_before[static_cast<CudaStream*>(stream)]);
  return std::any_of(f.works.begin(), f.works.end(), [&](const Work& work) {
    return work.due > behind && work.stream != stream &&
           work.address < address + static_cast<uint64_t>(bytes) &&
           address < work.address + static_cast<uint64_t>(work.bytes);
  });
}
FAKE_CONTROL int64_t headroom_fake_record(void* stream) {
  const std::lock_guard lock(fake().mutex);
  return queue(fake(), static_cast<CudaStream*>(stream));
}
FAKE_CONTROL void headroom_fake_wait(void* stream, int64_t event) {
  const std::lock_guard lock(fake().mutex);
  int64_t& not_before = fake().not_before[static_cast<CudaStream*>(stream)];
  not_before = std::max(not_before, event);
}
FAKE_CONTROL void headroom_fake_advance(int64_t ticks) {
  const std::lock_guard lock(fake().mutex);
  fake().now += ticks;
}
FAKE_CONTROL void headroom_fake_set_delay(int64_t ticks) {
  const std::lock_guard lock(fake().mutex);
  fake().setting.delay = ticks;
}
FAKE_CONTROL void headroom_fake_capture(int32_t change) {
  const std::lock_guard lock(fake().mutex);
  fake().captures += change;
}
FAKE_CONTROL int64_t headroom_fake_violations() {
  const std::lock_guard lock(fake().mutex);
  return fake().violations;
}
FAKE_CONTROL const char* headroom_fake_first_violation() {
  const std::lock_guard lock(fake().mutex);
  return fake().first_violation.c_str();
}
// NOLINTEND(readability-identifier-naming)
