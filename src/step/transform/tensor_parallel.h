// Tensor parallelism of one rank: the modules of a plan (tensor_plan.h) hold their part of the
// weights and compute their part of the products; DTensor's collectives stand around them.
//
// As transformers (5.23) applies it: every column-parallel module sums the gradient of its own
// input, so that queries, keys and values make three reductions in backward; row-parallel modules
// sum what they answer. An embedding named embed_tokens has a part of the rows, and the head
// gathers its logits. Where a plan is ours and the ranks do not divide the heads, attention's
// products are divided and put together, as phi3's are. LoRA's adapters are divided as peft (0.21)
// has them: beside a column-parallel module B, beside a row-parallel one A, whose answer is summed.
// Norms, and whatever the plan does not name, are whole on every rank. Ours is the first rank,
// whose part is the largest.
//
// Sequence parallel, it is torchtitan's plan instead: between divided modules each rank has its
// part of the sequence. What attention and the feed-forward take is gathered once, what they answer
// is summed and scattered, and norms run on the part; the gradients of their weights are summed as
// they are reduced or stepped, which is small and not here. The logits stay divided by class, and
// the loss is of the parts (operator/parallel_loss.cpp).
//
// Source: peft/tuners/lora/model.py (add_lora_tp_hooks_dtensor, 0.21);
// transformers/distributed/tensor_parallel.py, distributed/mixin.py (init_parallel_plans);
// torchtitan/models/llama3/infra/parallelize.py (apply_tp, 2024-12 to 2026); operator/parallel.cpp.
// Cost: a forward pass without memory events, some ms for a 7B model.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

struct TensorParallelOptions {
  int64_t ranks = 1;
  std::string_view model_type;
  // Data parallelism around it holds gradients in the layout of the weights: that of an embedding,
  // which comes whole, is cut.
  bool cuts_gradients = false;
  bool is_sequence_parallel = false;
  // transformers since 5.21; before, its plans leave the embedding whole.
  bool divides_embedding = true;
};

// Apply it after fused kernels and adapters, and before autocast. Errors: no
// plan for the architecture, heads or a sequence that the ranks do not divide, a module that has no
// rule.
[[nodiscard]] Result<model::Graph> apply_tensor_parallel(const model::Graph& graph,
                                                         const TensorParallelOptions& options);

}  // namespace headroom::step
