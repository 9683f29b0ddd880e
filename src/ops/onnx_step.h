// One run of an ONNX model, as the launches that predict_step() times: its operators on concrete
// sizes (model/onnx_run.h), sorted into groups by the rules that sort ONNX Runtime's profiles, so
// that a prediction and a profile of the same model speak of the same groups.
//
// Reads the file; some milliseconds for a model without its weights.
#pragma once

#include <string>
#include <vector>

#include "model/onnx_file.h"
#include "ops/predicted_step.h"
#include "ops/rules.h"
#include "ops/step_source.h"

namespace headroom::ops {

struct OnnxStep {
  std::vector<StepCall> calls;
  StepShape shape;
  int64_t batch = 0;               // 0: the file leaves none open, so that nobody knows it
  std::vector<std::string> notes;  // what open dimensions were taken as, what is not known
};

// Errors: a file that is none, sizes that depend on data, a size for what the file does not leave
// open.
Result<OnnxStep> step_of_onnx(const std::string& path, const StepSetting& setting,
                              const OperatorRules& rules);
Result<OnnxStep> step_of_onnx(const model::OnnxModel& model, const StepSetting& setting,
                              const OperatorRules& rules);

}  // namespace headroom::ops
