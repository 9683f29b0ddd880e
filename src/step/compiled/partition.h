// What a compiled region keeps for its backward pass: the cut of least weight through its forward
// pass between what has to be there at the end of it and what backward reads.
//
// Problem: each value either is kept or is computed again in backward from others that are. What
// libraries compute (matrix products, attention), random numbers, reductions, and what a library's
// kernel in backward reads as it is, are never computed again, nor what a fused kernel makes of a
// value that others read long before it; of the rest, computing again is taken for free, since it
// is fused into whoever reads it. Within a checkpoint everything is computed again but what a
// selective one keeps, and what it hands to the next one.
// Weights: bytes, doubled where nobody but fused kernels would have had the value in memory, and
// growing by a tenth with each step of distance from backward.
// Invariant of the answer: all that backward reads can be computed from it.
// Cost: a maximum flow on two nodes a value (Boost, Boykov and Kolmogorov).
// Left out: what PyTorch bans of chains of more than a hundred elementwise operators, which matrix
// products break up in the models at hand.
// Source: torch/_functorch/partitioners.py, solve_min_cut.
#pragma once

#include <vector>

#include "step/compiled/joint_graph.h"

namespace headroom::step {

// By value: is it kept? Arguments that backward needs are among them.
[[nodiscard]] std::vector<bool> values_kept(const JointGraph& graph);

}  // namespace headroom::step
