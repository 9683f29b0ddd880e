#include "step/gemini_chunks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace headroom::step {

namespace {

constexpr double kDeviations = 3;

int64_t sum_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

int64_t round_up_to(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// Of all groups together; the standard deviation is that of a whole population.
double largest_usual(const std::vector<const ChunkGroup*>& groups) {
  double count = 0;
  double sum = 0;
  double squares = 0;
  for (const ChunkGroup* group : groups) {
    for (const int64_t size : group->sizes) {
      const auto elements = static_cast<double>(size);
      count += 1;
      sum += elements;
      squares += elements * elements;
    }
  }
  const double mean = sum / count;
  return mean + kDeviations * std::sqrt(std::max(0.0, squares / count - mean * mean));
}

// What stays empty behind the last parameter of each chunk.
int64_t waste_of(const std::vector<int64_t>& sizes, int64_t chunk) {
  int64_t wasted = 0;
  int64_t left = 0;
  for (const int64_t size : sizes) {
    if (size > left) {
      wasted += left;
      left = chunk;
    }
    left -= size;
  }
  return wasted + left;
}

int64_t least_wasteful(const std::vector<std::vector<int64_t>>& groups, const ChunkSearch& search) {
  int64_t first = search.least_elements;
  for (const std::vector<int64_t>& sizes : groups) {
    for (const int64_t size : sizes) first = std::max(first, size);
  }
  first = round_up_to(first, search.distance);
  int64_t best = first;
  int64_t least = INT64_MAX;
  for (int64_t chunk = first; chunk <= first + search.range; chunk += search.distance) {
    int64_t wasted = 0;
    for (const std::vector<int64_t>& sizes : groups) wasted += waste_of(sizes, chunk);
    if (wasted >= least) continue;
    least = wasted;
    best = chunk;
  }
  return best;
}

}  // namespace

std::vector<ChunkSize> chunk_sizes(const std::vector<ChunkGroup>& groups,
                                   const ChunkSearch& search) {
  std::vector<const ChunkGroup*> large;
  int64_t multiple = 1;
  for (const ChunkGroup& group : groups) {
    multiple = std::lcm(multiple, group.ranks);
    if (sum_of(group.sizes) >= search.least_elements) large.push_back(&group);
  }
  int64_t size = 0;
  if (!large.empty()) {
    const double most = largest_usual(large);
    std::vector<std::vector<int64_t>> usual;
    for (const ChunkGroup* group : large) {
      std::vector<int64_t>& sizes = usual.emplace_back();
      std::ranges::copy_if(group->sizes, std::back_inserter(sizes),
                           [&](int64_t elements) { return static_cast<double>(elements) <= most; });
    }
    size = round_up_to(least_wasteful(usual, search), multiple);
  }
  std::vector<ChunkSize> chosen;
  for (const ChunkGroup& group : groups) {
    const bool is_small = sum_of(group.sizes) < search.least_elements;
    chosen.push_back({is_small ? sum_of(group.sizes) : size, is_small || group.ranks == 1});
  }
  return chosen;
}

}  // namespace headroom::step
