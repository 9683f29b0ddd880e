// A change of a run on a CPU, by what was measured on its machine: linear layers in int8.
//
// A calibration (timing/calibration.h) has times of linear layers in float32 and in int8, by shape.
// A layer of the run takes as many times its own recorded time as the one takes of the other, so
// that what else the run's machine did counts on both sides. The interval is that of both laws, as
// if all layers erred alike. Linear in the operators; pure.
#pragma once

#include <optional>

#include "device/device.h"
#include "ops/scenarios.h"
#include "timing/timing_model.h"

namespace headroom::ops {

// `processor`: the calibrated one, whose laws `laws` holds. Nothing where it was measured without
// int8, or the run has no linear layer in float32 whose shapes were recorded.
std::optional<Scenario> measured_int8(const Recording& recording, const RecordedRun& run,
                                      const device::Device& processor,
                                      const timing::TimingModel& laws);

}  // namespace headroom::ops
