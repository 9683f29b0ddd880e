#include "ops/calibration_notes.h"

namespace headroom::ops {
namespace {

std::string engine_of(const timing::Machine& machine) {
  return machine.engine.empty() ? "PyTorch " + machine.torch : machine.engine;
}

// "gemm_fp32, linear_int8": what has a law of the calibrated device.
std::string measured_classes(const timing::Calibration& calibration) {
  std::string words;
  for (const timing::Law& law : calibration.laws.laws) {
    if (law.device != calibration.device) continue;
    words += (words.empty() ? "" : ", ") + std::string(timing::name_of(law.kind));
  }
  return words.empty() ? "none" : words;
}

}  // namespace

std::string_view measured_product(const device::Device& device) {
  return device.product.empty() ? device.name : device.product;
}

std::string note_of_trace(const timing::Machine& machine) {
  return "the calibration was measured on " + machine.product + " with " + engine_of(machine) +
         ": the trace does not say which processor it is of, so that it is taken to be of that one";
}

std::vector<std::string> notes_of_prediction(const timing::Calibration& calibration, bool is_onnx) {
  const timing::Machine& machine = calibration.machine;
  std::vector<std::string> notes{"the calibration was measured on " + machine.product + " with " +
                                 engine_of(machine) + ": its times are of that machine"};
  const bool is_of_onnx_runtime = machine.engine.starts_with("onnxruntime");
  if (is_of_onnx_runtime) {
    notes.push_back("of the calibration's classes these are measured on " + machine.engine + ": " +
                    measured_classes(calibration) +
                    "; all others are general laws of other engines");
    if (!is_onnx) {
      notes.emplace_back(
          "PyTorch, which runs this model, may take other times than the calibration's engine "
          "(`headroom bench device` measures PyTorch)");
    }
  } else if (is_onnx) {
    notes.emplace_back(
        "the calibration's times are of PyTorch's operators: those of ONNX Runtime may be others "
        "(`headroom bench device --engine onnxruntime` measures its products)");
  }
  return notes;
}

}  // namespace headroom::ops
