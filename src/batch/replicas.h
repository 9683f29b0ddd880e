// Replicas of the server at B_opt on one GPU: what they gain, how long their tokens take, and which
// of them to start.
//
// By the queueing network of replication.h: R servers that together make X steps for one of a
// server alone each take R / X times as long for theirs. R = 2 at a gain of 1.27 makes 13.3 ms
// 20.9 ms. Pure; thread-safe.
#pragma once

#include <optional>

#include "base/result.h"
#include "base/units.h"
#include "batch/answer.h"
#include "batch/predicted.h"

namespace headroom::batch {

// `predicted` or null. REQUIRES: the answer has a chosen batch.
Result<void> fill_replicas(const Predicted* predicted, BatchAnswer& answer);

// Of one GPU: weights, the cache at B_opt and the context; nothing where the device's memory or the
// model is not known.
[[nodiscard]] std::optional<Bytes> memory_of_server(const Predicted* predicted,
                                                    const BatchAnswer& answer);

// Those under MPS that fit, meet the target and give more than any one server that meets it; null
// where there are none.
[[nodiscard]] const Replicas* replicas_to_start(const BatchAnswer& answer);

// Output tokens a second of all of them.
[[nodiscard]] Interval throughput_of(const Replicas& replicas, const BatchAnswer& answer);

}  // namespace headroom::batch
