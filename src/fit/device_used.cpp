#include "fit/device_used.h"

#include <algorithm>

namespace headroom::fit {

Interval outside_allocator(const device::Device& device) {
  const device::BytesInterval& context = device.context.value;
  return {context.low, context.expected, context.high};
}

Interval device_used(const device::Device& device, Bytes allocated, Bytes reserved) {
  const Interval context = outside_allocator(device);
  Interval used;
  used.expected = reserved + context.expected;
  // At the least, the allocator holds what is allocated, in whole segments.
  used.low = std::min(used.expected, std::max(allocated, reserved) + context.low);
  used.high = reserved + context.high;
  return used;
}

}  // namespace headroom::fit
