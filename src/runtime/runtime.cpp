#include "runtime/runtime.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/version.h"

namespace headroom::runtime {
namespace {

// For planners at the end of the process.
constexpr std::chrono::seconds kFinishTime{5};

// Without a destructor: a thread may ask for memory in the destructors of its other thread-locals,
// when one of this would have run already.
thread_local std::array<char, 2048> thread_error{};

}  // namespace

Runtime::Runtime() {
  fractions_.fill(1);
  // Held across a fork, so that the child does not find it taken by a thread that it has not.
  pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                 [] { get().begin_as_child(); });
}

// A child of a process that had used CUDA has none; of one that had not, it begins anew.
void Runtime::begin_as_child() {
  for (const auto& device : devices_) {
    if (device.load() != nullptr) is_forked_ = true;
  }
  mutex_.unlock();
}

void Runtime::set_error(const std::string& message) {
  const size_t bytes = std::min(message.size(), thread_error.size() - 1);
  std::copy_n(message.begin(), bytes, thread_error.begin());
  thread_error[bytes] = '\0';
}
const char* Runtime::error() { return thread_error.data(); }

Result<void> Runtime::configure(const Configuration& configuration) {
  const std::lock_guard lock(mutex_);
  for (const auto& device : devices_) {
    if (device.load() != nullptr) {
      return Error{ErrorCode::usage, "memory was already allocated", "headroom_configure",
                   "configure before the first allocation"};
    }
  }
  configuration_ = configuration;
  is_configured_ = true;
  driver_.reset();
  return {};
}

// REQUIRES: mutex_.
Result<const Driver*> Runtime::driver() {
  if (!is_configured_) {
    configuration_ = configuration_from_environment();
    is_configured_ = true;
  }
  if (driver_ == nullptr) {
    HEADROOM_ASSIGN(Driver loaded, load_driver(configuration_.driver_path));
    driver_ = std::make_unique<Driver>(loaded);
  }
  return static_cast<const Driver*>(driver_.get());
}

Result<void> Runtime::probe_driver() {
  const std::lock_guard lock(mutex_);
  HEADROOM_TRY(driver());
  return {};
}

DeviceAllocator* Runtime::open(int ordinal) {
  if (is_forked_.load()) {
    set_error("a process made by fork() has no CUDA: use spawn");
    return nullptr;
  }
  if (ordinal < 0 || ordinal >= kMostDevices) {
    set_error("device " + std::to_string(ordinal) + " is out of range");
    return nullptr;
  }
  const auto index = static_cast<size_t>(ordinal);
  const std::lock_guard lock(mutex_);
  if (DeviceAllocator* const known = devices_[index].load()) return known;
  auto loaded = driver();
  if (!loaded) {
    set_error(loaded.error().to_string());
    return nullptr;
  }
  auto opened = DeviceAllocator::open(**loaded, ordinal, configuration_);
  if (!opened) {
    set_error(opened.error().to_string());  // who asks again may meet a device that has room by now
    return nullptr;
  }
  if (fractions_[index] < 1) (*opened)->set_memory_fraction(fractions_[index]);
  if (expects_iterations_) (*opened)->expect_iterations();
  if (!allows_joins_) (*opened)->forbid_joins();
  DeviceAllocator* const device = opened->release();  // for ever
  devices_[index].store(device, std::memory_order_release);
  return device;
}

void Runtime::set_out_of_memory_handler(headroom_out_of_memory_handler handler, void* context) {
  handler_context_ = context;
  handler_ = handler;
}

void Runtime::tell_out_of_memory(int ordinal) {
  const headroom_out_of_memory_handler handler = handler_.load();
  if (handler != nullptr) handler(error(), ordinal, handler_context_.load());
}

double Runtime::memory_fraction(int ordinal) {
  if (ordinal < 0 || ordinal >= kMostDevices) return 1;
  const std::lock_guard lock(mutex_);
  return fractions_[static_cast<size_t>(ordinal)];
}

void Runtime::set_memory_fraction(double fraction, int ordinal) {
  if (ordinal < 0 || ordinal >= kMostDevices || !(fraction >= 0) || fraction > 1) return;
  const std::lock_guard lock(mutex_);
  fractions_[static_cast<size_t>(ordinal)] = fraction;
  if (DeviceAllocator* const known = open_device(ordinal)) known->set_memory_fraction(fraction);
}

void Runtime::expect_iterations() {
  const std::lock_guard lock(mutex_);
  expects_iterations_ = true;
  for (int i = 0; i < kMostDevices; ++i) {
    if (DeviceAllocator* const known = open_device(i)) known->expect_iterations();
  }
}

void Runtime::forbid_joins() {
  const std::lock_guard lock(mutex_);
  allows_joins_ = false;
  for (int i = 0; i < kMostDevices; ++i) {
    if (DeviceAllocator* const known = open_device(i)) known->forbid_joins();
  }
}

std::string Runtime::report_json() {
  std::string devices;
  for (int i = 0; i < kMostDevices; ++i) {
    if (DeviceAllocator* const known = open_device(i)) {
      devices += (devices.empty() ? "" : ", ") + known->report_json();
    }
  }
  const std::lock_guard lock(mutex_);
  return "{\"schema\": \"headroom.run_report/1\", \"version\": \"" + std::string(version()) +
         "\", \"mode\": \"" + mode_name(configuration_.mode) +
         "\", \"rank\": " + std::to_string(configuration_.rank) + ", \"devices\": [" + devices +
         "]}";
}

void Runtime::finish() {
  const auto until = std::chrono::steady_clock::now() + kFinishTime;  // for all devices together
  for (int i = 0; i < kMostDevices; ++i) {
    if (DeviceAllocator* const known = open_device(i)) known->finish(until);
  }
}

}  // namespace headroom::runtime
