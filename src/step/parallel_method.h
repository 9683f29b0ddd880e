// ParallelMethod: what a method of running on many devices does to one rank's step.
//
// A step runs as ever; the method has its say at the moments at which PyTorch's own wrappers have
// their hooks. A rank sees only its own memory, so a collective is what it allocates and keeps.
// Where a method puts parameters together, the head is no part of its own: its weight, gradient and
// state lie in blocks with others'.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/graph.h"
#include "operator/eager.h"
#include "step/interpreter.h"
#include "step/optimizer.h"
#include "step/parallel_options.h"
#include "step/recorder.h"

namespace headroom::step {

// Which of a step's micro-batches.
struct MicroBatch {
  bool is_first = true;
  bool is_last = true;
};

class ParallelMethod {
 public:
  virtual ~ParallelMethod() = default;

  // Every rank has the whole parameters: they are made first, as on one device.
  [[nodiscard]] virtual bool keeps_parameters_whole() const { return false; }
  // Whether the second step does what the first did.
  [[nodiscard]] virtual bool is_steady_at_once() const { return true; }

  // Makes this rank's part of the parameters, or what stands beside whole ones, and gives what the
  // optimizer steps. `whole` is what it would step on one device; empty where none are kept.
  [[nodiscard]] virtual std::vector<OptimizedParameter> construct(
      Frame& frame, std::vector<OptimizedParameter> whole) = 0;

  virtual void begin_forward(const MicroBatch& micro_batch, Frame& frame) = 0;
  virtual void end_forward(Frame&) {}
  // Around instruction `instruction`, where marks() asks for it.
  virtual void before(uint32_t /*instruction*/, Frame&) {}
  virtual void after(uint32_t /*instruction*/, Frame&) {}
  // Around a region that runs as a reentrant checkpoint, with gradients: transformers checkpoints
  // what a module computes, and not the module, whose hooks stand outside.
  virtual void before_reentrant(const model::Region&, Frame&) {}
  virtual void after_reentrant(const model::Region&, Frame&) {}
  // What a checkpoint did not keep is there again: a forward is over, or was cut off where it had
  // all.
  virtual void recomputed() {}
  // A node of the backward graph is about to run.
  virtual void before_backward(op::Node&) {}
  // A leaf has its gradient.
  virtual void accumulated(const op::Tensor& leaf) = 0;
  virtual void end_backward() = 0;
  // Of a pipeline's stage with several chunks of the model, as its schedule's actions say
  // (pipeline_actions.h): a chunk's parameters begin to be gathered, are let go of, and its
  // gradients are reduced. A pass of a chunk waits until it is gathered.
  virtual void gather_chunk(uint32_t /*chunk*/) {}
  virtual void begin_pass(uint32_t /*chunk*/) {}
  virtual void let_go_of_chunk(uint32_t /*chunk*/) {}
  virtual void reduce_chunk(uint32_t /*chunk*/) {}
  // Of a stage with one, behind the last pass of a step.
  virtual void end_passes() {}
  // What is done for a step of the optimizer; `step` is its own part. Where the method clips
  // gradients, nobody else does.
  virtual void run_optimizer(const std::function<void()>& step) { step(); }
  [[nodiscard]] virtual bool clips_gradients() const { return false; }

  // By instruction; null where none is marked.
  [[nodiscard]] virtual const InstructionMarks* marks() const { return nullptr; }
};

// All must outlive the method. Null for one device.
[[nodiscard]] std::unique_ptr<ParallelMethod> make_parallel_method(const ParallelOptions& options,
                                                                   const model::Graph& graph,
                                                                   op::Eager& eager,
                                                                   Recorder& recorder);

}  // namespace headroom::step
