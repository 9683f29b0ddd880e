// What the kernels of a recorded operator's backward take beside the blocks that a trace shows
// (operator/scratch.h): of those kinds whose scratch grows with the tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/graph.h"
#include "operator/eager.h"

namespace headroom::step {

// Bytes of each block.
struct RecordedScratch {
  std::vector<int64_t> first;       // there throughout
  std::vector<int64_t> passing;     // gone before the results are made
  std::vector<int64_t> at_the_end;  // beside the results
};

[[nodiscard]] RecordedScratch backward_scratch(const op::Environment& environment,
                                               const model::Operation& operation,
                                               std::span<const op::Tensor> inputs,
                                               std::span<const op::Tensor> outputs);

}  // namespace headroom::step
