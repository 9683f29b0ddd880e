// What bounds a run: the largest of what its time divides into, and, where the replay can be
// trusted, what gives most when it gets faster.
//
// Pure, thread-safe.
#pragma once

#include "ops/answer.h"

namespace headroom::ops {

// What wall time divides into, in percent.
struct WallShares {
  double idle = 0;
  double communication = 0;
  double gemm = 0;  // and attention
  double unclassified = 0;
  double non_gemm = 0;  // all the others
};
[[nodiscard]] WallShares wall_shares(const Accounting& wall_time);

// By the wall time alone. Fills `bound` and `bound_pct`.
void find_bound(OpsAnswer& answer);
// By the horizon: a device that is busy most of the time may still wait for its host where it
// matters. Nothing where the replay is far from the run. To be called after find_bound().
void find_bound_by_replay(OpsAnswer& answer);

// Of a file that was cut off so many kernels are lost that what looks idle may not be.
[[nodiscard]] bool lacks_many_kernels(const TraceFacts& facts);

// The part of the time in which graphs did what was not recorded, in percent.
[[nodiscard]] double unseen_pct(const OpsAnswer& answer);

}  // namespace headroom::ops
