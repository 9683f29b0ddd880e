// Fusion: the kernels of a pass of a compiled region as generated code has them.
//
// A fusible kernel and those that read what it makes become one, unless a library's kernel lies
// between; what is cheap and read in several places is computed in each of them. What only members
// of one fused kernel read is never in memory.
// Invariant: what a kernel reads is made by kernels that can run before it; there is no circle.
// A stage is a count of libraries' kernels on the way: fused kernels of one stage read from those
// of earlier ones; two that are fused because they read the same do not come of one another. Nearly
// linear in kernels and their operands, for the latter times at most kNeighboursMax readers and
// kBetweenMax kernels looked at. Source: torch/_inductor/{lowering,ir,scheduler}.py.
#pragma once

#include <utility>
#include <vector>

#include "step/compiled/joint_graph.h"

namespace headroom::step {

struct FusedKernel {
  std::vector<JointValueId> reads;   // from memory, each once
  std::vector<JointValueId> writes;  // to memory
  // {read, written}: of the same size, and nobody else in here needs what is read: the result may
  // take its place, where that ends here.
  std::vector<std::pair<JointValueId, JointValueId>> in_place;
  std::vector<op::KernelWork> work;
  int64_t scratch_bytes = 0;
  uint32_t module = 0;     // of its last operator
  uint32_t order = 0;      // of the first that it puts in memory, as the operators ran
  bool allocates = false;  // what it writes, by itself: attention, and collectives
};

// What a pass that begins with the values in `given` launches to make `wanted`, in no order.
[[nodiscard]] std::vector<FusedKernel> fuse_kernels(const JointGraph& graph,
                                                    const std::vector<bool>& given,
                                                    const std::vector<JointValueId>& wanted,
                                                    bool is_backward);

}  // namespace headroom::step
