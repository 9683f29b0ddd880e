// Runtime: the process's one allocator, behind the C ABI: its devices, opened when they are first
// used, its configuration, and what the last failure of each thread was.
//
// Leaked on purpose: tensors are freed while the process ends. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "runtime/configuration.h"
#include "runtime/device_allocator.h"
#include "runtime/driver.h"

namespace headroom::runtime {

class Runtime {
 public:
  static constexpr int kMostDevices = 64;

  static Runtime& get() {
    static Runtime* const instance = new Runtime;
    return *instance;
  }

  // Refused once a device is open.
  Result<void> configure(const Configuration& configuration);
  Result<void> probe_driver();

  // Opens the device where it is not open yet; null where it cannot be (set_error() was called).
  DeviceAllocator* device(int ordinal) {
    if (ordinal >= 0 && ordinal < kMostDevices) [[likely]] {
      DeviceAllocator* const known =
          devices_[static_cast<size_t>(ordinal)].load(std::memory_order_acquire);
      if (known != nullptr && !is_forked_.load(std::memory_order_relaxed)) [[likely]]
        return known;
    }
    return open(ordinal);
  }
  // The device only where it is open.
  [[nodiscard]] DeviceAllocator* open_device(int ordinal) const {
    if (ordinal < 0 || ordinal >= kMostDevices) return nullptr;
    if (is_forked_.load(std::memory_order_relaxed)) [[unlikely]]
      return nullptr;
    return devices_[static_cast<size_t>(ordinal)].load(std::memory_order_acquire);
  }

  [[nodiscard]] bool is_forked() const { return is_forked_.load(std::memory_order_relaxed); }

  void set_out_of_memory_handler(headroom_out_of_memory_handler handler, void* context);
  // Calls the handler with error(); it may throw. REQUIRES: no lock is held.
  void tell_out_of_memory(int ordinal);

  // Of a device that is not open yet, too.
  void set_memory_fraction(double fraction, int ordinal);
  double memory_fraction(int ordinal);
  // For all devices, and for those that are opened later.
  void expect_iterations();
  void forbid_joins();
  std::string report_json();
  void finish();

  // Cut after 2 KiB.
  static void set_error(const std::string& message);
  static const char* error();

 private:
  Runtime();
  DeviceAllocator* open(int ordinal);
  Result<const Driver*> driver();

  void begin_as_child();  // REQUIRES: mutex_, which it unlocks

  std::mutex mutex_;
  bool is_configured_ = false;
  Configuration configuration_;
  std::unique_ptr<Driver> driver_;
  std::array<std::atomic<DeviceAllocator*>, kMostDevices> devices_{};
  std::array<double, kMostDevices> fractions_{};  // set before the device was opened
  bool expects_iterations_ = false;               // mutex_
  bool allows_joins_ = true;                      // the same
  std::atomic<bool> is_forked_ = false;           // a child of fork(): no CUDA here
  std::atomic<headroom_out_of_memory_handler> handler_ = nullptr;
  std::atomic<void*> handler_context_ = nullptr;
};

}  // namespace headroom::runtime
