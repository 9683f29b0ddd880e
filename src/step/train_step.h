// One training step, from the construction of the model on, as eager PyTorch runs it: forward,
// loss, backward, clipping, optimizer, release; the first step (which makes the optimizer's states)
// and a steady one after it.
//
// Input: a Graph whose transformations have been applied. Output: the StepTrace. Cost: a few
// milliseconds for a 7B model. Deterministic; thread-safe across calls.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "base/result.h"
#include "model/graph.h"
#include "operator/eager.h"
#include "step/checkpoint.h"
#include "step/compiled/compiled_parts.h"
#include "step/optimizer.h"
#include "step/parallel_options.h"
#include "step/pipeline.h"
#include "step/trace.h"

namespace headroom::step {

enum class CheckpointPolicy : uint8_t {
  none,
  full,  // every layer
  every_nth,
  core_attention,  // of every layer that alone
};

struct TrainOptions {
  op::Environment environment;
  op::DType weights = op::DType::bf16;  // of parameters that say nothing else
  OptimizerOptions optimizer;
  CheckpointPolicy checkpointing = CheckpointPolicy::none;
  int checkpoint_every = 1;
  CheckpointKind checkpoint_kind = CheckpointKind::non_reentrant;
  KeptOutputs checkpoint_keeps;  // of the non-reentrant kind: selective checkpointing
  CompiledParts compiled;
  int64_t accumulation = 1;    // micro-batches a step
  bool clip_gradients = true;  // HF's Trainer clips to 1.0
  // A loop that holds `loss`, and so the graph behind it, to the end of the step; Trainer keeps
  // loss.detach().
  bool hold_loss = false;
  bool keep_outputs = false;  // a loop that holds `outputs` through backward, as Trainer does not
  bool optimizer_in_backward = false;
  ParallelOptions parallel;  // one rank of several
  Pipeline pipeline;         // of whose stages this is one; what it gives to the next goes with it
  bool accumulate_in_place = true;  // false under fake tensors
  int steps = 2;
  // Steps after the first are written by repeating it where that says the same (repeat.h); false
  // runs each, which tests hold against it.
  bool repeat_steps = true;
  // Of a stretch of layers that are alike only some are run (layer_fold.h); false runs each, which
  // tests hold against it.
  bool fold_layers = true;
  // Where what is asked for at one time goes beyond this, the trace ends (StepTrace::cut_short):
  // for searches, which need not know by how much a step does not fit.
  int64_t live_bytes_of_interest = std::numeric_limits<int64_t>::max();
  bool keep_calls = true;  // false: StepTrace::calls stays empty; events count them all the same
};

// The passes of a step as far as they can be known before all layers are traced (layer_fold.h).
// They depend on the graph and on all options but the optimizer, clipping, the number of steps and
// the bytes of interest: steps that differ in those alone may share them. Read-only once made.
struct FoldedPasses;
// Null where every layer has to be run.
[[nodiscard]] std::shared_ptr<const FoldedPasses> fold_passes(const model::Graph& graph,
                                                              const TrainOptions& options);

// The Error is about a tensor, or all of them together, beyond what a byte count holds.
Result<StepTrace> trace_training(const model::Graph& graph, const TrainOptions& options);
// With passes that fold_passes() made of them.
Result<StepTrace> trace_training(const model::Graph& graph, const TrainOptions& options,
                                 const FoldedPasses* folded);

}  // namespace headroom::step
