// Iterations: where a recording repeats itself.
//
// Found from the sequence of requests alone: their sizes, streams, order and lifetimes. A training
// step, a micro-batch where only one step was recorded, a decoded token, or the layers of a single
// forward pass are all stretches that come again; the shortest stretch that explains all but what
// is random is the iteration. Sizes may differ from one to the next (their pattern of equal sizes
// and lifetimes does not), requests may be missing or added. Marks of the user (the end of each
// optimizer step, say) are taken as boundaries where they are given.
//
// Times and requests are those of recorded_requests.h. O(n log n) for n requests, some 2 us each;
// 100 bytes a request. Pure, deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memory/packing/recorded_requests.h"

namespace headroom::memory {

struct Iteration {
  size_t begin = 0;   // of the requests that begin in it,
  size_t end = 0;     // by index; one after the last
  int64_t lower = 0;  // the same as times: from its first request on,
  int64_t upper = 0;  // until the one that comes after it begins
  // Iterations of one kind make the same requests but for what is random: one shape bucket, or one
  // of training and evaluation.
  uint32_t kind = 0;
};

enum class BoundarySource : uint8_t { none, sequence, marks };

struct Iterations {
  std::vector<Iteration> whole;  // in order, none or two and more; what lies outside is in none
  uint32_t kinds = 0;
  BoundarySource source = BoundarySource::none;
};

// `marks`: times at which an iteration begins, in order; fewer than two are no help.
// REQUIRES: `requests` are by lower, as recorded_requests() gives them.
[[nodiscard]] Iterations find_iterations(std::span<const RecordedRequest> requests,
                                         std::span<const int64_t> marks = {});

}  // namespace headroom::memory
