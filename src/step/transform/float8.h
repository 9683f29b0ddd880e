// Linear modules of layers become torchao's Float8Linear; the head stays as it is, as torchtitan's
// filter has it.
//
// The Error names a weight whose sizes are no multiples of 16, which float8's products want
// (torch._scaled_mm). Apply it before autocast. Cost: linear.
// Source: torchao/float8/float8_linear_utils.py; torchtitan 9dec370, torchtitan/float8.py.
#pragma once

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

[[nodiscard]] Result<model::Graph> apply_float8(model::Graph graph);

}  // namespace headroom::step
