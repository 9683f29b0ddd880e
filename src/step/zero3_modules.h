// The modules that ZeRO's third stage has hooks around, in the order in which they begin.
//
// DeepSpeed's hooks stand around every module, and each gathers what the module itself holds, not
// what modules inside it do; then it looks ahead (zero3_coordinator.h). So of a module here with
// parameters it is known from the first operator that takes one of them to the last; one that runs
// again later (a tied embedding as the head) is there once for each run. What a module computes
// before it takes its first parameter (a norm's mean) is counted before the module.
// Modules without parameters, which only look ahead: the whole model; what stands around the
// layers, by their names; layers, their attention and their perceptron; rotary positions; an
// activation. They are in backward, too, until their inputs have gradients (zero3_coordinator.h's
// 4); DeepSpeed sees inputs that are passed by position alone, so that Llama's attention ends with
// the layer there, and here before. Not seen are others: dropout where it is off, what peft puts
// around a matrix, parts of attention that are modules in some families. Cost: linear, and a sort.
//
// Source: deepspeed/runtime/zero/parameter_offload.py (setup_zero_stage3_hooks), version 0.19.8.
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph.h"

namespace headroom::step {

struct Zero3Module {
  std::vector<size_t> parameters;  // indices into Graph::parameters, growing; tied ones' holders
  uint32_t first = 0;              // instructions [first, last] take them, or are within it
  uint32_t last = 0;
  std::vector<model::ValueId> inputs;  // from outside: of those that take parameters; of the region
  std::vector<model::ValueId> outputs;
};

// In the order in which they begin.
[[nodiscard]] std::vector<Zero3Module> zero3_modules(const model::Graph& graph);

// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
[[nodiscard]] std::string_view zero3_module_name(const model::Parameter& parameter);

}  // namespace headroom::step
