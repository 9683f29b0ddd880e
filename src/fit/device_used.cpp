#include "fit/device_used.h"

#include <algorithm>

namespace headroom::fit {

namespace {

// Shares of what comes and goes within a step: the median of all rows, and five quarters of the
// largest (docs/measurements/2026-11-21-device-used/analyse.py).
constexpr double kBeyondReplay = 0.10;
constexpr double kBeyondReplayAtMost = 0.19;

Bytes share_of(Bytes bytes, double share) {
  return Bytes(static_cast<int64_t>(share * static_cast<double>(bytes.count)));
}

}  // namespace

Interval outside_allocator(const device::Device& device) {
  const device::BytesInterval& context = device.context.value;
  return {context.low, context.expected, context.high};
}

Interval device_used(const device::Device& device, const AllocatorFigures& figures, Bytes offered) {
  const Interval context = outside_allocator(device);
  const Bytes reserved = figures.peak_reserved;
  const Bytes comes_and_goes = std::max(Bytes(0), reserved - figures.between_steps);
  Interval used;
  used.expected = reserved + context.expected + share_of(comes_and_goes, kBeyondReplay);
  used.high = reserved + context.high + share_of(comes_and_goes, kBeyondReplayAtMost);
  const bool may_flush = used.high > offered;
  used.low = (may_flush ? figures.peak_allocated : reserved) + context.low;
  return used;
}

}  // namespace headroom::fit
