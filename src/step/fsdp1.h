// FSDP's first version: torch.distributed.fsdp.FullyShardedDataParallel with FULL_SHARD, as
// accelerate sets it up (use_orig_params, BACKWARD_PRE, no prefetch in forward).
//
// Each unit's parameters lie in one flat tensor, of which a rank keeps its share (the shard). Hooks
// gather the whole before a unit's forward, let it go behind it, gather it again before its
// backward, and once the flat gradient is whole, reduce it to the rank's share.
// Invariants:
//   1. A unit is gathered while a kernel reads its parameters. The root's is gathered from its
//      forward to the end of its backward.
//   2. Views of the whole are what autograd sees; they outlive what is gathered, as tensors whose
//      storage was resized to nothing do. So nothing that backward saved keeps a unit gathered.
//   3. Between backward and the next forward, gradients are shares, in the shards' type.
//   4. Frozen units have no gradient; they go when all gradients of their forward's inputs are
//      there, or at the end of backward.
//   5. What watches a frozen unit's inputs (register_multi_grad_hook) and an input that is a leaf
//      hold each other, so the inputs of reentrant checkpoints, and their gradients, stay until the
//      end of backward, where FSDP takes its hooks away.
// Gathering runs on a stream of its own, and so does reducing; blocks say which. A block that
// another stream used comes back late (record_stream), which moves reserved memory, never
// allocated. What was gathered is that: the host is taken to be as far ahead as FSDP lets it, which
// waits, before it gathers, until at most one of the units that it let go may be in use
// (limit_all_gathers). Gradients are taken to be reduced by the time that they are let go: that
// fits what was measured better (docs/measurements/2026-11-27-fsdp1-late). Source:
// torch/distributed/fsdp/_runtime_utils.py, _flat_param.py, _exec_order_utils.py (PyTorch 2.0
// to 2.13 alike in this).
#pragma once

#include <memory>

#include "step/sharded_method.h"

namespace headroom::step {

// All must outlive the method.
[[nodiscard]] std::unique_ptr<ParallelMethod> make_fsdp1(const model::Graph& graph,
                                                         const FsdpOptions& options,
                                                         op::Eager& eager, Recorder& recorder);

}  // namespace headroom::step
