// torch.cuda.set_per_process_memory_fraction over two allocators: each may have what the other
// leaves of it. Where there is no limit nothing is asked.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "figures.h"

namespace headroom::shim {

class Fractions {
 public:
  Fractions() {
    for (auto& limit : limits_) limit = 1;
  }

  double of(c10::DeviceIndex device) const { return limits_[place(device)].load(); }

  void set(c10::cuda::CUDACachingAllocator::CUDAAllocator& native, double limit,
           c10::DeviceIndex device) {
    TORCH_CHECK(limit >= 0 && limit <= 1, "invalid fraction: ", limit, ": 0 to 1");
    native.setMemoryFraction(limit, device);  // refuses a device that is none
    ours.set_memory_fraction(limit, device);
    limits_[place(device)] = limit;
    divide(native, device);
  }

  // Before and after the native allocator is asked for memory, and whenever it may have given some
  // back: else what it had once would be kept from ours.
  void divide(c10::cuda::CUDACachingAllocator::CUDAAllocator& native, c10::DeviceIndex device) {
    const double limit = of(device);
    if (limit >= 1) return;
    constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
    const int64_t theirs = native.getDeviceStats(device).reserved_bytes[kAll].current;
    const int64_t mine = our_statistics(device).reserved_bytes.current;
    if (theirs + mine == 0) {  // nothing may be asked: CUDA may not have been used
      native.setMemoryFraction(limit, device);
      ours.set_memory_fraction(limit, device);
      return;
    }
    int64_t free = 0;
    int64_t total = 0;
    ours.memory_info(device, &free, &total);
    if (total <= 0) return;
    const auto rest = [&](int64_t taken) {
      return std::max(limit - static_cast<double>(taken) / static_cast<double>(total), 0.0);
    };
    native.setMemoryFraction(rest(mine), device);
    ours.set_memory_fraction(rest(theirs), device);
  }

 private:
  static size_t place(c10::DeviceIndex device) {
    return static_cast<size_t>(std::clamp<int>(device, 0, 127));
  }
  std::array<std::atomic<double>, 128> limits_;  // by c10::DeviceIndex, which has 8 bits
};

}  // namespace headroom::shim
