// How well operators are predicted on a device: by which law, and how far it was off on what it had
// not seen. For `headroom devices NAME`.
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "device/device.h"
#include "text/json.h"
#include "text/terminal.h"
#include "timing/timing_model.h"

namespace headroom::report {

[[nodiscard]] std::string device_predictions_text(const device::Device& device,
                                                  const timing::TimingModel& model,
                                                  const text::Terminal& terminal);
[[nodiscard]] text::Json device_predictions_json(const device::Device& device,
                                                 const timing::TimingModel& model);

}  // namespace headroom::report
