// Which parameters FullyShardedDataParallel puts together: one unit for each module that is
// wrapped, and what is left in the root's.
//
// Source: torch/distributed/fsdp/wrap.py (transformer_auto_wrap_policy: the decoder layers) and
// peft/utils/other.py (fsdp_auto_wrap_policy: also every module without children whose weight is
// trained, which are the adapters').
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph.h"
#include "step/parallel_options.h"

namespace headroom::step {

struct ShardedUnit {
  std::vector<uint32_t> parameters;  // indices into Graph::parameters, in order; tied ones left out
  uint32_t begin = 0;                // instructions [begin, end) are the forward function
  uint32_t end = 0;
  std::vector<model::ValueId> inputs;
  std::vector<model::ValueId> outputs;
  uint32_t chunk = 0;        // of the graph's
  bool stays_whole = false;  // behind its forward
  bool is_experts = false;   // of a mixture, within a layer's
};

// Inner units before those around them; the last are the roots', around all instructions of a chunk
// each, which may have no parameters.
[[nodiscard]] std::vector<ShardedUnit> sharded_units(const model::Graph& graph,
                                                     const WrapOptions& options);

}  // namespace headroom::step
