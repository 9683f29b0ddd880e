#include "runtime/driver.h"

#include <dlfcn.h>

namespace headroom::runtime {

std::string Driver::name_of(CudaResult error) const {
  const char* name = nullptr;
  if (error_name == nullptr || error_name(error, &name) != kCudaSuccess || name == nullptr) {
    name = "CUDA error";
  }
  return std::string(name) + " (" + std::to_string(error) + ")";
}

Result<Driver> load_driver(const std::string& path) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return Error{ErrorCode::unavailable, reason == nullptr ? "cannot be loaded" : reason, name,
                 "is an NVIDIA driver installed?"};
  }
  Driver driver;
  std::string missing;
  const auto find = [&](const char* symbol) {
    void* const found = dlsym(library, symbol);
    if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(symbol);
    return found;
  };
#define HEADROOM_DRIVER_FIND(name, symbol, parameters) \
  driver.name = reinterpret_cast<CudaResult(*) parameters>(find(#symbol));
  HEADROOM_DRIVER_CALLS(HEADROOM_DRIVER_FIND)
#undef HEADROOM_DRIVER_FIND
  if (!missing.empty()) {
    return Error{ErrorCode::unavailable, "the driver lacks " + missing, name,
                 "CUDA 11.2 or later is needed"};
  }
  return driver;
}

DriverScope::DriverScope(const Driver& driver, CudaContext* context) : driver_(driver) {
  if (driver_.context_current(&before_) == kCudaSuccess && before_ != context) {
    has_changed_ = driver_.context_set(context) == kCudaSuccess;
  }
  driver_.capture_mode_exchange(&mode_);
}

DriverScope::~DriverScope() {
  driver_.capture_mode_exchange(&mode_);
  if (has_changed_) driver_.context_set(before_);
}

}  // namespace headroom::runtime
