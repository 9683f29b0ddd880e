// The CUDA driver: the calls that we use, found at run time in libcuda.so.1 or in a library that is
// named in its place (the tests' fake driver). Nothing of CUDA is needed to build.
//
// Types and numbers are those of the driver's C ABI (cuda.h of CUDA 11.2 to 13.0; functions that
// have versions are taken by the name of the version that has not changed since). A table of
// pointers, no state: thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace headroom::runtime {

using CudaResult = int;  // CUresult
using CudaDevice = int;
using CudaPointer = uint64_t;  // CUdeviceptr
using CudaHandle = uint64_t;   // CUmemGenericAllocationHandle
struct CudaContext;            // opaque: pointers to these are what the driver gives
struct CudaStream;

// A stream as a number, which is how recordings and plans name it.
inline int64_t handle_of(const CudaStream* stream) { return reinterpret_cast<intptr_t>(stream); }
inline CudaStream* stream_with_handle(int64_t handle) {
  return reinterpret_cast<CudaStream*>(static_cast<intptr_t>(handle));
}
struct CudaEvent;

inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr CudaResult kCudaInvalidValue = 1;
inline constexpr CudaResult kCudaOutOfMemory = 2;
inline constexpr CudaResult kCudaNotInitialized = 3;
inline constexpr CudaResult kCudaDeinitialized = 4;
inline constexpr CudaResult kCudaNotReady = 600;
inline constexpr CudaResult kCudaNotSupported = 801;
inline constexpr CudaResult kCudaCapturedEvent = 907;
// What is not allowed while somebody captures (900 to 907): it says nothing of work that is queued.
constexpr bool is_capture_error(CudaResult result) {
  return result >= 900 && result <= kCudaCapturedEvent;
}

inline constexpr int kAttributeVirtualMemory = 102;
inline constexpr int kAttributeHandlesArePosixFiles = 103;
inline constexpr int kAttributeGpuDirectWithVirtualMemory = 110;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureModeRelaxed = 2;

struct CudaLocation {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
struct CudaAllocationProperties {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;
  CudaLocation location;
  void* win32 = nullptr;
  unsigned char compression = 0;
  unsigned char gpu_direct_capable = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
struct CudaAccess {
  CudaLocation location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
static_assert(sizeof(CudaAllocationProperties) == 32 && sizeof(CudaAccess) == 12);

// One line a call: its name here, its symbol, its parameters.
#define HEADROOM_DRIVER_CALLS(CALL)                                                            \
  CALL(init, cuInit, (unsigned flags))                                                         \
  CALL(device_get, cuDeviceGet, (CudaDevice * device, int ordinal))                            \
  CALL(device_count, cuDeviceGetCount, (int* count))                                           \
  CALL(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, CudaDevice device)) \
  CALL(device_total, cuDeviceTotalMem_v2, (size_t * bytes, CudaDevice device))                 \
  CALL(can_access_peer, cuDeviceCanAccessPeer, (int* can, CudaDevice device, CudaDevice peer)) \
  CALL(primary_context_retain, cuDevicePrimaryCtxRetain,                                       \
       (CudaContext * *context, CudaDevice device))                                            \
  CALL(context_current, cuCtxGetCurrent, (CudaContext * *context))                             \
  CALL(context_set, cuCtxSetCurrent, (CudaContext * context))                                  \
  CALL(context_synchronize, cuCtxSynchronize, ())                                              \
  CALL(stream_context, cuStreamGetCtx, (CudaStream * stream, CudaContext * *context))          \
  CALL(stream_is_capturing, cuStreamIsCapturing, (CudaStream * stream, int* status))           \
  CALL(stream_wait_event, cuStreamWaitEvent,                                                   \
       (CudaStream * stream, CudaEvent * event, unsigned flags))                               \
  CALL(memory_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                          \
  CALL(memory_allocate, cuMemAlloc_v2, (CudaPointer * pointer, size_t bytes))                  \
  CALL(memory_free, cuMemFree_v2, (CudaPointer pointer))                                       \
  CALL(granularity, cuMemGetAllocationGranularity,                                             \
       (size_t * bytes, const CudaAllocationProperties* properties, int option))               \
  CALL(address_reserve, cuMemAddressReserve,                                                   \
       (CudaPointer * pointer, size_t bytes, size_t alignment, CudaPointer wish,               \
        unsigned long long flags))                                                             \
  CALL(handle_create, cuMemCreate,                                                             \
       (CudaHandle * handle, size_t bytes, const CudaAllocationProperties* properties,         \
        unsigned long long flags))                                                             \
  CALL(handle_release, cuMemRelease, (CudaHandle handle))                                      \
  CALL(map, cuMemMap,                                                                          \
       (CudaPointer pointer, size_t bytes, size_t offset, CudaHandle handle,                   \
        unsigned long long flags))                                                             \
  CALL(unmap, cuMemUnmap, (CudaPointer pointer, size_t bytes))                                 \
  CALL(set_access, cuMemSetAccess,                                                             \
       (CudaPointer pointer, size_t bytes, const CudaAccess* access, size_t count))            \
  CALL(event_create, cuEventCreate, (CudaEvent * *event, unsigned flags))                      \
  CALL(event_record, cuEventRecord, (CudaEvent * event, CudaStream * stream))                  \
  CALL(event_query, cuEventQuery, (CudaEvent * event))                                         \
  CALL(event_synchronize, cuEventSynchronize, (CudaEvent * event))                             \
  CALL(capture_mode_exchange, cuThreadExchangeStreamCaptureMode, (int* mode))                  \
  CALL(error_name, cuGetErrorName, (CudaResult error, const char** name))

struct Driver {
#define HEADROOM_DRIVER_POINTER(name, symbol, parameters) CudaResult(*name) parameters = nullptr;
  HEADROOM_DRIVER_CALLS(HEADROOM_DRIVER_POINTER)
#undef HEADROOM_DRIVER_POINTER

  // "CUDA_ERROR_OUT_OF_MEMORY (2)"
  [[nodiscard]] std::string name_of(CudaResult error) const;
};

// Loads a driver; it stays loaded. `path` empty: libcuda.so.1. Makes no call of it. The Error says
// what was not found, and what to do.
Result<Driver> load_driver(const std::string& path);

// While it lives, the context is the thread's current one, and calls that a graph capture in this
// thread would forbid are allowed (they touch none of its streams).
class DriverScope {
 public:
  DriverScope(const Driver& driver, CudaContext* context);
  ~DriverScope();
  DriverScope(const DriverScope&) = delete;
  DriverScope& operator=(const DriverScope&) = delete;

 private:
  const Driver& driver_;
  CudaContext* before_ = nullptr;
  bool has_changed_ = false;
  int mode_ = kCaptureModeRelaxed;
};

}  // namespace headroom::runtime
