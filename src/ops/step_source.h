// The step that a model makes: of a configuration by its family, or of FILE.py:FUNCTION by tracing
// it, as `fit` does. Pure for a configuration; a traced module runs Python (model/tracer.h).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "model/load.h"
#include "ops/predicted_step.h"
#include "text/json.h"

namespace headroom::ops {

struct StepSetting {
  bool is_training = false;
  std::optional<int64_t> batch;  // what is nothing is 1, or as a traced function makes it
  std::optional<int64_t> seq;    // or 512
  std::optional<op::DType> dtype;
  std::map<std::string, int64_t> dimensions = {};  // of an ONNX file, by name
};

struct StepSource {
  step::StepTrace trace;
  StepShape shape;
  int64_t batch = 1;
  Bytes weights;  // that lie in memory
};

Result<StepSource> step_of_config(const text::JsonView& config, const StepSetting& setting);
Result<StepSource> step_of_module(const std::string& target, const StepSetting& setting);

}  // namespace headroom::ops
