// What a reader must know of the machine and the engine that a calibration was measured on, since
// neither a processor's trace nor a model says which it is about.
//
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "timing/calibration.h"

namespace headroom::ops {

// "AMD EPYC 7B13"; of a device without a product its name.
[[nodiscard]] std::string_view measured_product(const device::Device& device);

// Of a trace of a processor: it does not name it.
[[nodiscard]] std::string note_of_trace(const timing::Machine& machine);

// Of a prediction on the calibrated device: whose machine and whose operators the times are.
// `is_onnx`: of an ONNX file, which PyTorch does not run.
[[nodiscard]] std::vector<std::string> notes_of_prediction(const timing::Calibration& calibration,
                                                           bool is_onnx);

}  // namespace headroom::ops
