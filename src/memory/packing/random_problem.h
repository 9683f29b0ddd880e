// Random packing problems (tests only): small ones that a brute force can judge, and larger ones of
// several shapes. The same seed gives the same problem.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "memory/packing/problem.h"

namespace headroom::memory {

struct ProblemShape {
  size_t requests = 6;
  int64_t times = 8;
  int64_t largest = 9;
  int64_t alignment = 1;
};

inline PackingProblem random_problem(uint64_t seed, const ProblemShape& shape) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  PackingProblem problem;
  problem.alignment = shape.alignment;
  for (size_t i = 0; i < shape.requests; ++i) {
    const int64_t a = below(shape.times);
    const int64_t b = below(shape.times);
    // Now and then nothing: no lifetime, or no size.
    problem.requests.push_back({std::min(a, b), std::max(a, b), below(shape.largest)});
  }
  return problem;
}

// A problem whose lower bound can be met: the rectangle of `height` by `times` cut at random.
inline PackingProblem random_tiling(uint64_t seed, int64_t height, int64_t times, size_t pieces) {
  std::mt19937_64 random(seed);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low));
  };
  PackingProblem problem;
  problem.requests.push_back({0, times, height});
  for (size_t tries = 0; problem.requests.size() < pieces && tries < 20 * pieces; ++tries) {
    PackingRequest& piece = problem.requests[random() % problem.requests.size()];
    PackingRequest rest = piece;
    if (random() % 2 == 0 && piece.upper - piece.lower > 1) {
      piece.upper = rest.lower = between(piece.lower + 1, piece.upper);
    } else if (piece.size > 1) {
      piece.size = between(1, piece.size);
      rest.size -= piece.size;
    } else {
      continue;
    }
    problem.requests.push_back(rest);
  }
  return problem;
}

}  // namespace headroom::memory
