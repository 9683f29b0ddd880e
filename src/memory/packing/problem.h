// A packing problem: requests with lifetimes, to be placed in one address range that is as short as
// possible (dynamic storage allocation). A solution is one offset for each request.
//
// Plain values; the synthesizer (plan_synthesizer.h) makes solutions, the validator (validator.h)
// judges them, and neither knows the other's code. 24 bytes a request. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace headroom::memory {

// Lives at the times lower <= t < upper; equal bounds mean that it never lives. Times are any
// numbers that order events, such as indices of a trace.
struct PackingRequest {
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t size = 0;  // bytes; 0 takes no room
  bool operator==(const PackingRequest&) const = default;
};

struct PackingProblem {
  std::vector<PackingRequest> requests;
  int64_t alignment = 1;  // sizes are rounded up to, and offsets are, multiples of this
  bool operator==(const PackingProblem&) const = default;
};

struct PackingSolution {
  std::vector<int64_t> offsets;  // by request
  int64_t bytes = 0;             // the highest end of a request that lives
  bool operator==(const PackingSolution&) const = default;
};

// The largest alignment, request and number of requests that the synthesizer takes, and the most
// that all sizes may add up to: every sum of sizes then fits int64.
inline constexpr int64_t kMaxPackingAlignment = int64_t{1} << 40;
inline constexpr int64_t kMaxPackingBytes = int64_t{1} << 60;
inline constexpr int64_t kMaxPackingRequests = 1'000'000'000;

// Checks that bounds are in order, sizes and alignment in range. The error names the request by its
// index. Linear.
Result<void> check_problem(const PackingProblem& problem);

// The most bytes that live at one moment, sizes rounded up to the alignment: no plan is shorter.
// 0 where nothing lives. REQUIRES: check_problem(problem). O(n log n).
[[nodiscard]] int64_t packing_lower_bound(const PackingProblem& problem);

}  // namespace headroom::memory
