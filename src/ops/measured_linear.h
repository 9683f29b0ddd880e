// A change of a run on a CPU, by what was measured on its machine: linear layers in int8.
//
// A calibration (timing/calibration.h) has times of linear layers in float32 and in int8, by shape.
// A layer of the run takes as many times its own recorded time as the one takes of the other, so
// that what else the run's machine did counts on both sides: by the law of that quotient where the
// calibration has shapes that were measured both ways, else by the two laws. The interval is the
// quotient's, or that of both laws, as if all layers erred alike. Linear in the operators; pure.
#pragma once

#include <optional>

#include "device/device.h"
#include "ops/scenarios.h"
#include "timing/int8_quotient.h"
#include "timing/timing_model.h"

namespace headroom::ops {

// `processor`: the calibrated one, whose laws `laws` holds; `quotient` may be null. Nothing where
// it was measured without int8, or the run has no linear layer in float32 whose shapes were
// recorded.
std::optional<Scenario> measured_int8(const Recording& recording, const RecordedRun& run,
                                      const device::Device& processor,
                                      const timing::TimingModel& laws,
                                      const timing::Int8Quotient* quotient);

}  // namespace headroom::ops
