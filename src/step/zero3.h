// DeepSpeed's ZeRO, stage 3: of parameters, float32 masters, the optimizer's
// states and gradients a rank has its share; parameters are whole while they are used.
//
// The first rank, on which no share ends in padding but where a parameter is smaller than the ranks
// are many. Invariants:
//   1. The model is made under zero.Init: a module's parameters whole, then the share of each
//      (zero3_parameters.h). Shares of what is trained then go through the host's memory into one
//      flat block, the cache being emptied between. A group of the optimizer's is cut into
//      sub-groups of sub_group_size elements of the rank's, or one parameter more; each has a
//      master in float32, cloned from a copy.
//   2. There is a bucket of reduce_bucket_size elements, however small the model, and a flat block
//      for the rank's share of all gradients, in half precision, for good.
//   3. Around each module that has parameters, forward and backward, they are gathered and let go
//      as zero3_coordinator.h has it; those of at most stage3_param_persistence_threshold elements
//      stay until the step, and are gathered again behind it.
//   4. In backward a gradient is copied into the bucket as it comes, and its block goes; one that
//   is
//      larger than the bucket stays where it is. A bucket that the next one does not fit is reduced
//      and scattered, in each micro-batch: its gradients are put together rank by rank in one more
//      block (not where one alone divides evenly), and the rank's share is copied or added into the
//      flat block. With overlap_comm gathers and reductions have streams of their own, else they
//      are the one's that computes.
//   5. The step: everything whole goes; in fp16 a look for infinities; norms in float64, gradient
//   by
//      gradient; then sub-group by sub-group its gradients in one flat block, the same in float32
//      (the first goes), the optimizer, and the shares' new values.
//   6. With the optimizer on the host there are neither masters nor a block for gradients on the
//      device: the rank's share of each goes there as its bucket is reduced, comes back to be added
//      to, and behind the last micro-batch is measured in float64, at most 250 million elements at
//      once, and widened to be sent. With parameters on the host shares of what is trained are
//      there (zero3_parameters.h).
// Source: deepspeed/runtime/zero/stage3.py and parameter_offload.py, version 0.19.8; deepspeed's
// runtime/comm/coalesced_collectives.py (reduce_scatter_coalesced).
#pragma once

#include <memory>

#include "step/parallel_method.h"

namespace headroom::step {

// All must outlive the method. The graph's linear modules are as apply_zero3_linear makes them.
[[nodiscard]] std::unique_ptr<ParallelMethod> make_zero3(const model::Graph& graph,
                                                         const ZeroOptions& options,
                                                         op::Eager& eager, Recorder& recorder);

}  // namespace headroom::step
