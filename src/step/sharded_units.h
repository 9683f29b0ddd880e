// Which parameters FullyShardedDataParallel puts together: one unit for each module that is
// wrapped, and what is left in the root's.
//
// Source: torch/distributed/fsdp/wrap.py (transformer_auto_wrap_policy: the decoder layers) and
// peft/utils/other.py (fsdp_auto_wrap_policy: also every module without children whose weight is
// trained, which are the adapters').
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/graph.h"

namespace headroom::step {

struct ShardedUnit {
  std::vector<uint32_t> parameters;  // indices into Graph::parameters, in order; tied ones left out
  uint32_t begin = 0;                // instructions [begin, end) are the forward function
  uint32_t end = 0;
  std::vector<model::ValueId> inputs;
  std::vector<model::ValueId> outputs;
};

struct WrapOptions {
  bool adapters = false;  // each adapter's matrix is a unit of its own
  // A checkpointed layer's second run has the unit's hooks run again: transformers up to 4.51 calls
  // the wrapped layer from within the checkpoint. Later ones have the checkpoint within the layer.
  bool inside_checkpoints = false;
};

struct FsdpOptions {
  int version = 2;  // 1: FullyShardedDataParallel; 2: fully_shard
  int64_t ranks = 1;
  WrapOptions wrap;
  // Mixed precision: units are gathered and reduced in this type, and trained shards are float32,
  // as accelerate has them. Nothing: all in the parameters' own.
  std::optional<model::DType> compute;
  model::DType weights = model::DType::bf16;  // of parameters that say nothing else
};

// Inner units before those around them; the last is the root's, around all instructions, and may
// have no parameters.
[[nodiscard]] std::vector<ShardedUnit> sharded_units(const model::Graph& graph,
                                                     const WrapOptions& options);

}  // namespace headroom::step
