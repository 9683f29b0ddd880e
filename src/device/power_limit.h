// A GPU that is held to less power than its board is made for (nvidia-smi --power-limit): its units
// run at a lower clock, its memory does not.
//
// How much lower is taken from two boards of one chip with as many units each: NVIDIA's H100 SXM
// (700 W, 989.4 TFLOPS) and H100 NVL (400 W, 835.5), so that the clock falls as the 0.30th power of
// the limit; a dynamic power that grows as the cube of the clock would make it a third. Peaks
// alone: what the card of a step at its own limit does is in the timing model's ratio. Sources:
// NVIDIA H100 datasheet, H100 NVL product brief.
#pragma once

#include "base/result.h"
#include "device/device.h"

namespace headroom::device {

// The Error is about a board whose power is not known, and a limit that it cannot have: above its
// own, or below a fifth of it.
Result<void> limit_power(Device& device, Watts limit);

}  // namespace headroom::device
