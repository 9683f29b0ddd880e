// Which layers each stage of a pipeline of Megatron-LM's holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engines/megatron.h"

namespace headroom::fit {

// Layers by stage and by its chunks: chunk c of stage s is part c * stages + s of the model. The
// Error is about what does not divide.
// Source: get_num_layers_to_build in megatron/core/transformer/transformer_block.py, validate_args
// in megatron/training/arguments.py, at d98e8a64.
Result<std::vector<std::vector<int64_t>>> layers_by_stage(const engines::MegatronArguments& from,
                                                          const std::string& file);

// That a pipeline can be gone through in some seconds, and its passes held: `layers` of the
// stage that has most, on all its chunks. Of any numbers; the Error says how many are too many.
Result<void> check_passes(int64_t stages, int64_t chunks, int64_t layers);

}  // namespace headroom::fit
