// Linear modules of layers become torchao's Float8Linear; the head stays as it is, and so do
// weights whose sizes are no multiples of 16, as torchtitan's filter has it. Experts in one block
// are none. Where tensor parallel ranks gather sequences for them, they gather float8.
//
// The Error says that there is no such module. Apply it before autocast. Cost: linear.
// Source: torchtitan/components/quantization/{float8,utils}.py.
#pragma once

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

[[nodiscard]] Result<model::Graph> apply_float8(model::Graph graph);

}  // namespace headroom::step
