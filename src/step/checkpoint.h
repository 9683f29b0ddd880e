// Activation checkpointing: a region runs without keeping what its operators save, and runs again
// in backward. Both of PyTorch's kinds, with their lifetimes:
//
//   reentrant      the region runs without gradients and becomes one node that keeps the region's
//                  inputs; its backward runs the region again on detached inputs and calls the
//                  engine from within.
//   non-reentrant  the region runs with gradients, but every tensor it saves is taken by a hook;
//   the
//                  first one asked for in backward runs the region again up to the last tensor that
//                  was saved, and each is let go as its node takes it.
//
//   selective      the non-reentrant kind, but what chosen operators make in the first run is kept,
//   and
//                  the second run takes it instead of running them.
//
// Values inside a region are dropped by the time backward comes, so the second run uses the first
// run's frame. Regions that are checkpointed must not nest.
// Source: torch/utils/checkpoint.py.
#pragma once

#include <cstdint>
#include <memory>

#include "step/engine.h"
#include "step/interpreter.h"

namespace headroom::step {

enum class CheckpointKind : uint8_t { reentrant, non_reentrant };

// What a selective checkpoint keeps of what its region makes: the policies that people give to
// torch.utils.checkpoint.create_selective_checkpoint_contexts.
struct KeptOutputs {
  bool attention = false;
  bool products = false;  // of matrices
  int64_t but_every = 0;  // of the products, every n-th is computed again; 0: none
  [[nodiscard]] bool any() const { return attention || products; }
  // Whether what an operator of this kind makes is kept, asked in the order in which they run;
  // `products_run` counts those of matrices.
  [[nodiscard]] bool keeps(op::OpKind kind, int64_t& products_run) const {
    if (kind == op::OpKind::sdpa) return attention;
    ++products_run;
    return products && (but_every <= 0 || products_run % but_every != 0);
  }
};

class Checkpointer {
 public:
  // All must outlive the step. `engine` runs the inner backward of the reentrant kind.
  Checkpointer(op::Eager& eager, const model::Graph& graph, Interpreter& interpreter,
               Engine& engine, CheckpointKind kind, KeptOutputs kept)
      : eager_(eager),
        graph_(graph),
        interpreter_(interpreter),
        engine_(engine),
        kind_(kind),
        kept_(kept) {}

  // Runs the region checkpointed; its outputs are in the frame afterwards.
  void run(uint32_t region, Frame& frame);
  // For EngineHooks::unpack: puts back what hooks took from this node. Whether a region ran again
  // for that.
  bool unpack(op::Node& node);

 private:
  struct Recomputation;
  class Taking;
  class Collecting;
  class Cache;
  void run_reentrant(uint32_t region, Frame& frame);
  void run_non_reentrant(uint32_t region, Frame& frame);
  void recompute(Recomputation& recomputation);
  void clear_values(uint32_t region, Frame& frame) const;

  op::Eager& eager_;
  const model::Graph& graph_;
  Interpreter& interpreter_;
  Engine& engine_;
  CheckpointKind kind_;
  KeptOutputs kept_;
};

}  // namespace headroom::step
