#include "fit/device_used.h"

#include <algorithm>

namespace headroom::fit {

namespace {

// How much of what the allocator holds unused a real run's order of requests may add or spare, and
// what a flush near the device's end gives back. Taken from the four rows of Mistral-7B that
// docs/measurements/2026-11-21-device-used lists, so those rows say nothing about how true it is.
constexpr double kUnusedMayVary = 2.0 / 3.0;

}  // namespace

Interval outside_allocator(const device::Device& device) {
  const device::BytesInterval& context = device.context.value;
  return {context.low, context.expected, context.high};
}

Interval device_used(const device::Device& device, Bytes allocated, Bytes reserved) {
  const Interval context = outside_allocator(device);
  const Bytes unused = std::max(Bytes(0), reserved - allocated);
  const Bytes varies(static_cast<int64_t>(kUnusedMayVary * static_cast<double>(unused.count)));
  Interval used;
  used.expected = reserved + context.expected;
  used.low = std::min(used.expected, reserved - varies + context.low);
  used.high = reserved + varies + context.high;
  return used;
}

}  // namespace headroom::fit
