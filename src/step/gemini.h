// Colossal-AI's Gemini on the GPU alone (placement "cuda"), around a model in half precision: what
// LLMem (arXiv 2404.10933) calls advanced data parallelism.
//
// The first rank, whose share of a chunk is full. Invariants:
//   1. Parameters lie in chunks (gemini_chunks.h) in half precision, in the model's order, and once
//      more in float32. Of each chunk a rank holds its share; a chunk that stays whole is whole in
//      both. A parameter larger than a chunk has one of its own.
//   2. The first operator that takes one of a chunk's parameters gathers it: the whole takes the
//      share's place, and is there until all its gradients are. Nothing is let go after forward.
//   3. A gradient is copied over its parameter, and goes. Behind the last of a chunk the chunk is
//      reduced into the rank's share, and the whole goes; one that stays whole is reduced in place.
//      For either NCCL is handed a list of parts, which it puts together in a block of its own.
//   4. The optimizer steps the float32 shares parameter by parameter, with gradients in the
//      half-precision ones; these get the new values then.
// Source: colossalai/zero/gemini (chunk/chunk.py, chunk/manager.py, gemini_ddp.py,
// gemini_optimizer.py) of LLMem's authors; ProcessGroupNCCL.cpp (newLikeFlat) of PyTorch 2.0.
#pragma once

#include <memory>

#include "step/parallel_method.h"

namespace headroom::step {

// All must outlive the method.
[[nodiscard]] std::unique_ptr<ParallelMethod> make_gemini(const model::Graph& graph,
                                                          const GeminiOptions& options,
                                                          op::Eager& eager, Recorder& recorder);

}  // namespace headroom::step
