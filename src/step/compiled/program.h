// Program: the kernels that generated code launches for one pass of a compiled region, with what it
// allocates before and lets go after each.
//
// Order: of two, the one whose peak is lower: libraries' kernels as they ran, with fused ones as
// late as their first reader allows; or, of the kernels that can run, the one that raises the peak
// least, then the one that leaves least behind. Values are let go after their last reader; a fused
// kernel writes in the place of one that ends there, where it can.
// Linear in kernels and operands, times how many kernels can run at one time.
// Source: torch/_inductor/memory.py (reorder_for_peak_memory, on since torch 2.6),
// torch/_inductor/codegen/wrapper.py (lifetimes).
#pragma once

#include <utility>
#include <vector>

#include "step/compiled/joint_graph.h"

namespace headroom::step {

struct ProgramStep {
  std::vector<JointValueId> reads;
  std::vector<JointValueId> allocates;
  std::vector<std::pair<JointValueId, JointValueId>> reuses;  // {the value that ends, the new one}
  std::vector<JointValueId> frees;
  std::vector<op::KernelWork> work;
  int64_t scratch_bytes = 0;
  uint32_t module = 0;  // where in the model it is, for labels
};

struct Program {
  std::vector<ProgramStep> steps;
  std::vector<bool> reads;  // by value: what it takes from those that it was given
};

// A pass that begins with the values in `given` and has to make `wanted`.
[[nodiscard]] Program forward_program(const JointGraph& graph, const std::vector<bool>& given,
                                      const std::vector<JointValueId>& wanted);
// `holds_gradients`: the caller holds what it gives until the pass is done.
[[nodiscard]] Program backward_program(const JointGraph& graph, const std::vector<bool>& given,
                                       const std::vector<JointValueId>& wanted,
                                       bool holds_gradients);

}  // namespace headroom::step
