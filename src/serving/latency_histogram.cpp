#include "serving/latency_histogram.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace headroom::serving {
namespace {

constexpr double kLeastSeconds = 1e-6;
constexpr double kWidth = 1e-3;      // in the logarithm
constexpr size_t kBuckets = 27'632;  // ln(10^12) / kWidth, and one

// The rank, from 1, of the value that `share` of `count` are not above. A share that is a whole
// number of them but for its last bit counts as that.
int64_t rank_of(double share, int64_t count) {
  const double rank = std::ceil(share * static_cast<double>(count) * (1 - 1e-12));
  return std::clamp<int64_t>(static_cast<int64_t>(rank), 1, count);
}

}  // namespace

void LatencyHistogram::add(double seconds, int64_t times) {
  if (buckets_.empty()) buckets_.resize(kBuckets);
  const double place = std::log(std::max(seconds, kLeastSeconds) / kLeastSeconds) / kWidth;
  const double most = kBuckets - 1;
  buckets_[static_cast<size_t>(std::clamp(place, 0.0, most))] += times;
  count_ += times;
  sum_ += seconds * static_cast<double>(times);
}

double LatencyHistogram::mean() const {
  return count_ > 0 ? sum_ / static_cast<double>(count_) : 0;
}

double LatencyHistogram::quantile(double share) const {
  HEADROOM_CHECK(share > 0 && share <= 1, "a share of what was seen");
  if (count_ == 0) return 0;
  const int64_t rank = rank_of(share, count_);
  int64_t below = 0;
  size_t bucket = 0;
  while ((below += buckets_[bucket]) < rank) ++bucket;
  return kLeastSeconds * std::exp((static_cast<double>(bucket) + 0.5) * kWidth);
}

double nearest_rank(const std::vector<double>& sorted, double share) {
  HEADROOM_CHECK(share > 0 && share <= 1, "a share of what was seen");
  if (sorted.empty()) return 0;
  return sorted[static_cast<size_t>(rank_of(share, static_cast<int64_t>(sorted.size())) - 1)];
}

}  // namespace headroom::serving
