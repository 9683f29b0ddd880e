// The least height of a small packing problem, found by looking at every plan that matters (tests
// only): the oracle of the exact search, written from the definition and sharing no code with it.
//
// In a plan in which nothing can sink, offsets come in some order, each item at 0 or on top of an
// item that it lives with. All such plans are tried, lowest item first. Up to about seven requests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "memory/packing/problem.h"

namespace headroom::memory {

class BruteForce {
 public:
  // Requests whose offset in `fixed` is not negative stay there; without any, all are free.
  explicit BruteForce(const PackingProblem& problem, std::vector<int64_t> fixed = {})
      : problem_(problem), offsets_(std::move(fixed)) {
    offsets_.resize(problem.requests.size(), -1);
    for (const PackingRequest& request : problem.requests) best_ += rounded(request);
    best_ *= 2;  // above obstacles, too
    place_next(0);
  }
  // Of what was placed: obstacles may be higher.
  [[nodiscard]] int64_t least_bytes() const { return best_; }

 private:
  [[nodiscard]] int64_t rounded(const PackingRequest& request) const {
    const int64_t step = problem_.alignment;
    return (request.size + step - 1) / step * step;
  }
  [[nodiscard]] bool live_together(size_t a, size_t b) const {
    const PackingRequest& first = problem_.requests[a];
    const PackingRequest& second = problem_.requests[b];
    return first.lower < second.upper && second.lower < first.upper && first.lower < first.upper &&
           second.lower < second.upper;
  }
  [[nodiscard]] bool is_free(size_t item, int64_t offset) const {
    for (size_t other = 0; other < offsets_.size(); ++other) {
      if (offsets_[other] < 0 || !live_together(item, other)) continue;
      const int64_t end = offset + rounded(problem_.requests[item]);
      const int64_t other_end = offsets_[other] + rounded(problem_.requests[other]);
      if (offset < other_end && offsets_[other] < end) return false;
    }
    return true;
  }
  void place_next(int64_t height) {
    if (height >= best_) return;
    bool is_complete = true;
    for (size_t item = 0; item < offsets_.size(); ++item) {
      if (offsets_[item] >= 0) continue;
      is_complete = false;
      std::vector<int64_t> places{0};
      for (size_t other = 0; other < offsets_.size(); ++other) {
        if (offsets_[other] >= 0 && live_together(item, other)) {
          places.push_back(offsets_[other] + rounded(problem_.requests[other]));
        }
      }
      const PackingRequest& request = problem_.requests[item];
      const int64_t size = request.lower < request.upper ? rounded(request) : 0;
      for (const int64_t place : places) {
        if (!is_free(item, place)) continue;
        offsets_[item] = place;
        place_next(std::max(height, place + size));
        offsets_[item] = -1;
      }
    }
    if (is_complete) best_ = height;
  }

  const PackingProblem& problem_;
  std::vector<int64_t> offsets_;
  int64_t best_ = 0;
};

}  // namespace headroom::memory
