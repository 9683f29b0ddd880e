// What several servers on one GPU gain: a closed queueing network.
//
// A step of one server alternates between the GPU (its kernels, share 1 - g of the step) and the
// host (scheduling, sampling, launches: g). R servers under MPS queue for the one GPU and think on
// hosts of their own, so exact mean-value analysis says how many steps a second come out; the most
// that can be gained is 1 / (1 - g), when the GPU never waits. Nothing is fitted: g is the only
// input. What it leaves out: that kernels of two servers may also overlap, and that a cache may run
// out. Source: Reiser and Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks",
// JACM 27(2), 1980. O(count); pure.
#pragma once

#include "batch/step_law.h"

namespace headroom::batch {

// Of the network's gain under MPS, where the caches sufficed (three pairs of OPT-1.3B on one H100:
// +0.5 to +3.1 %; arXiv 2503.08311, its repository's results). A few pairs on one GPU are no basis
// for a narrower interval. Under time-slicing, of three such pairs: 0.74 to 0.85.
inline constexpr Interval kMpsKeeps{0.95, 1.0, 1.06};
inline constexpr Interval kTimeSlicingKeeps{0.74, 0.80, 0.85};

// Steps a second of `count` servers, in those of one alone. REQUIRES: count >= 1, 0 <= host_gap
// < 1.
[[nodiscard]] double replication_speedup(int count, double host_gap);

}  // namespace headroom::batch
