#include "device/detect.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace headroom::device {
namespace {

constexpr unsigned kMaxGpus = 256;
constexpr unsigned kNameSize = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

// The few prototypes of nvml.h that are needed, as its interface has promised since version 5.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
constexpr int kNvmlSuccess = 0;

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*device_name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*memory_info)(NvmlDevice, NvmlMemory*) = nullptr;
};

using Library = std::unique_ptr<void, int (*)(void*)>;

template <typename Function>
bool load(void* library, const char* name, Function*& function) {
  void* symbol = ::dlsym(library, name);
  static_assert(sizeof symbol == sizeof function);
  std::memcpy(&function, &symbol, sizeof symbol);
  return symbol != nullptr;
}

bool load_all(void* library, Nvml& nvml) {
  return load(library, "nvmlInit_v2", nvml.init) && load(library, "nvmlShutdown", nvml.shutdown) &&
         load(library, "nvmlDeviceGetCount_v2", nvml.device_count) &&
         load(library, "nvmlDeviceGetHandleByIndex_v2", nvml.device_by_index) &&
         load(library, "nvmlDeviceGetName", nvml.device_name) &&
         load(library, "nvmlDeviceGetMemoryInfo", nvml.memory_info);
}

Error unavailable(const char* what) {
  return Error{ErrorCode::unavailable,
               what,
               {},
               "name the device instead, for example --device a100-sxm-80gb; "
               "`headroom devices` lists them"};
}

std::vector<DetectedGpu> read_gpus(const Nvml& nvml) {
  std::vector<DetectedGpu> gpus;
  unsigned count = 0;
  if (nvml.device_count(&count) != kNvmlSuccess) return gpus;
  for (unsigned i = 0; i < std::min(count, kMaxGpus); ++i) {
    NvmlDevice handle = nullptr;
    std::array<char, kNameSize> name{};
    NvmlMemory memory{};
    // A GPU that has fallen off the bus, say, is left out.
    if (nvml.device_by_index(i, &handle) != kNvmlSuccess) continue;
    if (nvml.device_name(handle, name.data(), kNameSize - 1) != kNvmlSuccess) continue;
    if (nvml.memory_info(handle, &memory) != kNvmlSuccess) continue;
    gpus.push_back({name.data(), Bytes(static_cast<int64_t>(memory.total)),
                    Bytes(static_cast<int64_t>(memory.used))});
  }
  return gpus;
}

}  // namespace

Result<std::vector<DetectedGpu>> detect_gpus() {
  const Library library(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL),
                        [](void* handle) { return handle != nullptr ? ::dlclose(handle) : 0; });
  if (!library) return unavailable("no NVIDIA driver is installed here (libnvidia-ml.so.1)");
  Nvml nvml;
  if (!load_all(library.get(), nvml)) return unavailable("the NVIDIA driver here is too old");
  if (nvml.init() != kNvmlSuccess) return unavailable("the NVIDIA driver here does not answer");
  std::vector<DetectedGpu> gpus = read_gpus(nvml);
  nvml.shutdown();
  if (gpus.empty()) return unavailable("the NVIDIA driver here finds no GPU");
  return gpus;
}

}  // namespace headroom::device
