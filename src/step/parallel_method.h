// ParallelMethod: what a method of running on many devices does to one rank's step.
//
// A step runs as ever; the method has its say at the moments at which PyTorch's own wrappers have
// their hooks. A rank sees only its own memory, so a collective is what it allocates and keeps. The
// head is no part of its own here: its weight, gradient and state lie in blocks with others'.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/graph.h"
#include "operator/eager.h"
#include "step/interpreter.h"
#include "step/optimizer.h"

namespace headroom::step {

class ParallelMethod {
 public:
  virtual ~ParallelMethod() = default;

  // Makes this rank's part of the parameters, in place of whole ones in the frame.
  virtual void construct(Frame& frame) = 0;
  // What the optimizer is given.
  [[nodiscard]] virtual std::vector<OptimizedParameter> optimized() const = 0;

  virtual void begin_forward() = 0;
  // Around instruction `instruction`, where marks() asks for it.
  virtual void before(uint32_t instruction, Frame& frame) = 0;
  virtual void after(uint32_t instruction, Frame& frame) = 0;
  // A node of the backward graph is about to run.
  virtual void before_backward(op::Node& node) = 0;
  // A leaf has its gradient.
  virtual void accumulated(const op::Tensor& leaf) = 0;
  virtual void end_backward() = 0;

  [[nodiscard]] virtual const InstructionMarks& marks() const = 0;
};

}  // namespace headroom::step
