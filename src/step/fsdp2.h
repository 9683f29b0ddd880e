// FSDP's second version: torch.distributed.fsdp.fully_shard, resharding after forward, without
// prefetching by hand.
//
// A rank keeps of each parameter its rows (the first dimension, padded to equal shares). A unit's
// parameters are gathered into one buffer and copied out of it into a block each, which come and
// go; their gradients are copied into one buffer, reduced, and kept as views of the rank's share.
// Invariants:
//   1. While a unit's parameters are copied out, its gathered buffer is there too; in forward it
//      stays until the next unit's copies are made, since that unit gathers meanwhile.
//   2. A unit's gradients are reduced once all that its forward did has run backward; the input of
//      that reduction stays until the next unit reduces.
//   3. Among replicas a share is reduced once more, in place. One that is then cast stays in both
//      types to the end of backward.
//   4. The root's parameters stay gathered from forward to the end of backward, where it reduces.
// Gathering and reducing run on streams of their own, and nothing is recorded on a second stream.
// Source: torch/distributed/fsdp/_fully_shard/ (PyTorch 2.6 to 2.13 alike in this).
#pragma once

#include <memory>

#include "step/sharded_method.h"

namespace headroom::step {

// All must outlive the method.
[[nodiscard]] std::unique_ptr<ParallelMethod> make_fsdp2(const model::Graph& graph,
                                                         const FsdpOptions& options,
                                                         op::Eager& eager, Recorder& recorder);

}  // namespace headroom::step
