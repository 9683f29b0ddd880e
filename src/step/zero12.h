// DeepSpeed's ZeRO, stages 1 and 2: every rank has the whole model in half
// precision, and of the float32 masters and the optimizer's states its share; of gradients, stage 2
// keeps the rank's own only.
//
// The first rank, on which no share ends in padding. Invariants:
//   1. The trained parameters of a group of the optimizer's lie in one flat block, padded to equal
//      shares of even length. Its first share is cloned and made the rank's master, in float32; the
//      optimizer steps the masters.
//      Before each group the cache is emptied, and where the device has no room for the block
//      beside the group's parameters, these go to the host and the cache is emptied again.
//   2. In backward there is a bucket (two with overlap_comm) of reduce_bucket_size elements,
//      however small the model. Stage 2 copies each gradient into it as it comes, and the block
//      that backward made goes; a gradient larger than the bucket stays where it is. A full bucket
//      is reduced: where it holds shares of several ranks it is copied for that. Then gradients of
//      other ranks go, and the rank's own are copied into a block for all of them.
//   3. Stage 1 does the same when the last micro-batch's backward is done, so that all gradients
//      are there at its end, and the bucket from the first gradient on. Stage 2 reduces in each
//      micro-batch, into a block of its own that is added to the first one's.
//      A bucket is averaged by all-reduce (use_multi_rank_bucket_allreduce), on the stream that
//      computes; with overlap_comm beside it, and the next one waits for it.
//   4. The step: norms in float64, gradient by gradient (where clipping or not); then group by
//      group the gradients in one flat block, the same in float32 (the first goes), the optimizer.
//      Shares are gathered in place.
//   5. With the optimizer on the host no masters are made, and no block for the rank's gradients:
//      each goes to the host as its bucket is reduced, in the last micro-batch behind its norm in
//      float64 and a copy in float32; one that is larger than the bucket is cloned before. A block
//      as large as the largest parameter stays, for adding up what is on the host. Copies between
//      the two are taken to make no other block of the device: they are of one type, or blocking
//      ones, which are widened on the host (aten/src/ATen/native/cuda/Copy.cu). In 0.19.6 a
//      look for infinities made up to 11 bytes for each element of a gradient besides; in 0.19.8 it
//      takes the largest and the least. (0.19.7 was not looked at.)
// Source: deepspeed/runtime/zero/stage_1_and_2.py, version 0.19.8, and its setup_buckets,
// average_tensor, independent_gradient_partition_epilogue, step.
#pragma once

#include <memory>

#include "step/parallel_method.h"

namespace headroom::step {

// All must outlive the method.
[[nodiscard]] std::unique_ptr<ParallelMethod> make_zero12(const model::Graph& graph,
                                                          const ZeroOptions& options,
                                                          op::Eager& eager, Recorder& recorder);

}  // namespace headroom::step
