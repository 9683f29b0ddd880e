#include "timing/flash_ceiling.h"

namespace headroom::timing {

namespace {

constexpr double kOfPeak = 335.0 / 989.4;
constexpr int kHopper = 9;

}  // namespace

void hold_to_flash_ceiling(const device::Device& device, double flops, PredictedTime& time) {
  const auto& rate = device.rate(device::Rate::bf16);
  const auto& capability = device.compute_capability;
  const bool is_hopper = device.vendor == device::Vendor::nvidia && capability.known() &&
                         capability.value.major == kHopper;
  if (!is_hopper || !rate.known() || rate.value.value <= 0 || time.seconds <= 0) return;
  const double ratio = flops / (kOfPeak * rate.value.value) / time.seconds;
  if (!(ratio > 1)) return;
  time.seconds *= ratio;
  time.seconds_low *= ratio;
  time.seconds_high *= ratio;
}

}  // namespace headroom::timing
