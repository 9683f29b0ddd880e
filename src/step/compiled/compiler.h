// Compiler: runs regions of a model as torch.compile does: one autograd node each, whose forward
// and backward passes are generated kernels.
//
// A region is looked at once, where it first runs (joint_graph.h), cut (partition.h), and written
// down as two programs (program.h). Checkpoints around a region, or within it, are part of what is
// compiled, and decide what may be kept. Arguments are held by the caller while forward runs, and,
// before PyTorch 2.12, the gradients that backward is given until it is done; else those, and what
// was kept, end with their last readers.
// Throws op::Impossible where a region does what is not modelled under torch.compile.
// Source: torch/_functorch/_aot_autograd/runtime_wrappers.py.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "step/compiled/joint_graph.h"
#include "step/interpreter.h"

namespace headroom::step {

struct CompiledRegion;

class Compiler {
 public:
  Compiler(op::Eager& eager, const model::Graph& graph, RegionCheckpoints checkpoints);
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  // The region's outputs are in the frame afterwards, and nothing else that it made.
  void run(uint32_t region, Frame& frame);

 private:
  const CompiledRegion& compiled(uint32_t region, const Frame& frame);

  op::Eager& eager_;
  const model::Graph& graph_;
  RegionCheckpoints checkpoints_;
  std::map<uint32_t, std::shared_ptr<const CompiledRegion>> regions_;
};

}  // namespace headroom::step
