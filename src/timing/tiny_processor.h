// A processor of round figures, for tests.
#pragma once

#include "device/device.h"

namespace headroom::timing {

template <typename T>
device::Figure<T> tested(T value) {
  return {value, Provenance::measured, "a test"};
}

inline device::Device tiny_processor() {
  device::Device device;
  device.name = "cpu";
  device.vendor = device::Vendor::cpu;
  device.bandwidth = tested(BytesPerSecond{2e10});
  device.l2 = tested(Bytes(32 * kMiB));
  device.sm_count = tested<int64_t>(2);
  device.dense_rates[static_cast<size_t>(device::Rate::fp32)] = tested(FlopsPerSecond{1e11});
  device.dense_rates[static_cast<size_t>(device::Rate::int8)] = tested(FlopsPerSecond{4e11});
  return device;
}

}  // namespace headroom::timing
