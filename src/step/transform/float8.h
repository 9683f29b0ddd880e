// Linear modules of layers become torchao's Float8Linear; the head stays as it is, and so do
// weights whose sizes are no multiples of 16, as torchtitan's filter has it. Experts in one block
// are none. What ranks gather for them, weights and sequences, may be cast before.
//
// The Error says that there is no such module. Apply it before autocast. Cost: linear.
// Source: torchtitan/components/quantization/{float8,utils}.py.
#pragma once

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

// What is gathered in float8, a byte an element.
struct Float8Gathers {
  bool weights = true;    // by fully_shard
  bool sequences = true;  // by tensor parallel ranks
};

[[nodiscard]] Result<model::Graph> apply_float8(model::Graph graph, Float8Gathers gathers = {});

}  // namespace headroom::step
