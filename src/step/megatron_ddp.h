// Megatron-LM's DistributedDataParallel and its mixed precision optimizers, on the last of the data
// parallel ranks, whose shares of parameters come last.
//
// Invariants:
//   1. Gradients lie in one block (`main_grad`), float32 as a rule, made with the model and never
//      let go. A parameter's own gradient goes as soon as it has been added there.
//   2. Without the distributed optimizer parameters stay as they were made, and each has a master
//   in
//      float32 (cloned first, in its own type).
//   3. With it parameters lie in one block as well, each on a boundary of 64 elements, buckets end
//      on a multiple of the ranks and of 128; buckets follow backward's order, and those of the
//      word embeddings that two stages share stand alone. A rank's masters are of its share of each
//      bucket.
//      Experts have blocks of their own, as other ranks hold them, and so has each chunk of a
//      stage; only the first chunk's are cut into buckets.
//   4. With overlap_grad_reduce a bucket's reduction begins in the step's last backward pass, once
//      the products behind its matrices' gradients are done; the rest at that pass' end.
//   5. Masters' gradients are views of a float32 block, copies of another that stay until the next
//      step begins; an optimizer takes nothing beside its states. Shares of
//      gradients and parameters are reduced and gathered in place.
// Source: megatron/core/distributed/{distributed_data_parallel,param_and_grad_buffer}.py,
// optimizer/{optimizer,distrib_optimizer,param_layout}.py, at d98e8a64 (August 2026).
#pragma once

#include <memory>

#include "step/parallel_method.h"

namespace headroom::step {

// All must outlive the method.
[[nodiscard]] std::unique_ptr<ParallelMethod> make_megatron_ddp(const model::Graph& graph,
                                                                const MegatronOptions& options,
                                                                op::Eager& eager,
                                                                Recorder& recorder);

}  // namespace headroom::step
