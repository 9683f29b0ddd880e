// Whose parameters ZeRO's third stage gathers together: a module's own, before it runs.
//
// DeepSpeed's hooks stand around every module, and each gathers what the module itself holds, not
// what modules inside it do. So a module here is one that has parameters, from the first operator
// that takes one of them to the last; one that runs again later (a tied embedding as the head) is
// there once for each run. What a module computes before it takes its first parameter (a norm's
// mean) is counted before the module. Cost: linear.
//
// Source: deepspeed/runtime/zero/parameter_offload.py (setup_zero_stage3_hooks), version 0.19.8.
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph.h"

namespace headroom::step {

struct Zero3Module {
  std::vector<size_t> parameters;  // indices into Graph::parameters, growing; tied ones' holders
  uint32_t first = 0;              // instructions [first, last] take them
  uint32_t last = 0;
  std::vector<model::ValueId> inputs;  // of those instructions, from outside
  std::vector<model::ValueId> outputs;
};

// In the order in which they begin.
[[nodiscard]] std::vector<Zero3Module> zero3_modules(const model::Graph& graph);

// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
[[nodiscard]] std::string_view zero3_module_name(const model::Parameter& parameter);

}  // namespace headroom::step
