#include "memory/packing/validator.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace headroom::memory {
namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::bad_input, std::move(message), "packing", ""};
}

std::string named(size_t request) { return "request " + std::to_string(request); }

bool takes_room(const PackingRequest& request) {
  return request.size > 0 && request.lower < request.upper;
}

Result<void> check_offsets(const PackingProblem& problem, const PackingSolution& solution) {
  if (solution.offsets.size() != problem.requests.size()) {
    return invalid(std::to_string(solution.offsets.size()) + " offsets for " +
                   std::to_string(problem.requests.size()) + " requests");
  }
  int64_t highest = 0;
  for (size_t i = 0; i < solution.offsets.size(); ++i) {
    const int64_t offset = solution.offsets[i];
    if (offset < 0 || offset > kMaxPackingBytes) return invalid(named(i) + " is out of range");
    if (offset % problem.alignment != 0) return invalid(named(i) + " is not aligned");
    if (takes_room(problem.requests[i])) {
      highest = std::max(highest, offset + problem.requests[i].size);
    }
  }
  // The last request may be short of its alignment, so `bytes` may be the rounded end.
  if (solution.bytes < highest || solution.bytes - highest >= problem.alignment) {
    return invalid("the plan says " + std::to_string(solution.bytes) +
                   " bytes, its requests end at " + std::to_string(highest));
  }
  return {};
}

}  // namespace

Result<void> validate_packing(const PackingProblem& problem, const PackingSolution& solution) {
  if (auto checked = check_offsets(problem, solution); !checked) return checked;
  // What happens in order of time: (time, 0 = ends or 1 = begins, request).
  std::vector<std::tuple<int64_t, int, size_t>> events;
  for (size_t i = 0; i < problem.requests.size(); ++i) {
    if (!takes_room(problem.requests[i])) continue;
    events.emplace_back(problem.requests[i].lower, 1, i);
    events.emplace_back(problem.requests[i].upper, 0, i);
  }
  std::sort(events.begin(), events.end());
  std::map<int64_t, size_t> living;  // by offset
  for (const auto& [time, begins, i] : events) {
    const int64_t offset = solution.offsets[i];
    if (begins == 0) {
      living.erase(offset);
      continue;
    }
    const auto above = living.lower_bound(offset);
    if (above != living.end() && above->first < offset + problem.requests[i].size) {
      return invalid(named(i) + " overlaps " + named(above->second));
    }
    if (above != living.begin()) {
      const auto below = std::prev(above);
      if (below->first + problem.requests[below->second].size > offset) {
        return invalid(named(i) + " overlaps " + named(below->second));
      }
    }
    living.emplace(offset, i);
  }
  return {};
}

}  // namespace headroom::memory
