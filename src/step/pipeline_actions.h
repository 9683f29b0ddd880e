// What a rank does in a step beside its passes where PyTorch's schedules gather and let go of whole
// chunks that fully_shard divides (_PipelineScheduleRuntime). Single ones have passes alone.
//
// Before each pass the next chunks that there will be passes of, three at the most, begin to be
// gathered, and any other is let go of; a chunk's gradients are reduced right behind the last pass
// that makes some. So no more than three are whole at a time. Cost: passes times chunks.
// Source: torch/distributed/pipelining/schedules.py (2.11 and 2.13 alike): _add_unshard_reshard,
// _add_reduce_grad.
#pragma once

#include <cstdint>
#include <vector>

#include "step/pipeline.h"

namespace headroom::step {

enum class PipelineActionKind : uint8_t { pass, gather, let_go, reduce };

struct PipelineAction {
  PipelineActionKind kind = PipelineActionKind::pass;
  uint32_t chunk = 0;
  PipelinePass pass;  // of kind pass
};

// REQUIRES: micro_batches >= 1.
[[nodiscard]] std::vector<PipelineAction> actions_of(const Pipeline& pipeline,
                                                     int64_t micro_batches);

}  // namespace headroom::step
