// torch.nn.parallel.DistributedDataParallel: every rank has the whole model, and gradients are
// averaged in buckets.
//
// Invariants:
//   1. Construction sends parameters and buffers from rank 0, copied together into blocks of 250
//      MiB, two of which exist at a time; a tensor alone in its block is sent as it is. Buffers are
//      sent again before the forward pass of each step.
//   2. Buckets exist from construction on. The first step has one for each type of parameters (as
//      their first use is not known yet); the next step begins by replacing them with buckets of
//      the first step's order of gradients, up to 1 MiB the first, up to 25 MiB the others.
//   3. Gradients lie in blocks of their own beside the buckets; or, gradient_as_bucket_view, in the
//      buckets, from the moment that each is there (zero_grad lets go of the views at every step,
//      so that each gradient is made anew before it is copied).
//   4. find_unused_parameters: buckets are divided at once and never replaced, and what the forward
//      function returns is copied, logits too (_DDPSink).
//   5. A parameter that gets no gradient leaves its bucket unreduced. (The real one ends with an
//      error, but for find_unused_parameters.)
// Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp and comm.cpp
// (PyTorch 1.11 to 2.13 alike in this).
#pragma once

#include <memory>

#include "step/parallel_method.h"

namespace headroom::step {

// All must outlive the method.
[[nodiscard]] std::unique_ptr<ParallelMethod> make_ddp(const model::Graph& graph,
                                                       const DdpOptions& options, op::Eager& eager,
                                                       Recorder& recorder);

}  // namespace headroom::step
