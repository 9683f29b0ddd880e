#include "memory/packing/problem.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/units.h"

namespace headroom::memory {
namespace {

Error wrong_request(size_t index, std::string message) {
  return Error{ErrorCode::bad_input, std::move(message), "request " + std::to_string(index), ""};
}

}  // namespace

Result<void> check_problem(const PackingProblem& problem) {
  if (problem.alignment < 1 || problem.alignment > kMaxPackingAlignment) {
    return Error{ErrorCode::bad_input, "the alignment is not between 1 and 2^40", "", ""};
  }
  if (problem.requests.size() > static_cast<size_t>(kMaxPackingRequests)) {
    return Error{ErrorCode::bad_input, "more than 10^9 requests", "", ""};
  }
  int64_t total = 0;
  for (size_t i = 0; i < problem.requests.size(); ++i) {
    const PackingRequest& request = problem.requests[i];
    if (request.lower > request.upper) return wrong_request(i, "ends before it begins");
    if (request.size < 0 || request.size > kMaxPackingBytes) {
      return wrong_request(i, "the size is not between 0 and 2^60");
    }
    const int64_t rounded = round_up(request.size, problem.alignment);
    if (rounded > kMaxPackingBytes - total) {
      return wrong_request(i, "the sizes add up to more than 2^60 bytes");
    }
    total += rounded;
  }
  return {};
}

int64_t packing_lower_bound(const PackingProblem& problem) {
  // At equal times ends come before beginnings, as their negative changes sort first.
  std::vector<std::pair<int64_t, int64_t>> changes;
  changes.reserve(2 * problem.requests.size());
  for (const PackingRequest& request : problem.requests) {
    if (request.lower == request.upper) continue;
    const int64_t size = round_up(request.size, problem.alignment);
    changes.emplace_back(request.lower, size);
    changes.emplace_back(request.upper, -size);
  }
  std::sort(changes.begin(), changes.end());
  int64_t load = 0;
  int64_t highest = 0;
  for (const auto& [time, change] : changes) {
    load += change;
    highest = std::max(highest, load);
  }
  return highest;
}

}  // namespace headroom::memory
