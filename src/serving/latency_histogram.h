// How often each length of time was seen, to a resolution of 0.1 %, in constant memory.
//
// Buckets are equally wide in the logarithm, from 1 us to 10^6 s; what is shorter or longer counts
// in the first or the last. The mean is exact. A logarithm an add; not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::serving {

class LatencyHistogram {
 public:
  void add(double seconds, int64_t times = 1);
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] double mean() const;
  // The least time that so many of all are not above; the geometric middle of its bucket. 0 where
  // nothing was added. REQUIRES: 0 < share <= 1.
  [[nodiscard]] double quantile(double share) const;

 private:
  std::vector<int64_t> buckets_;  // empty until the first add
  int64_t count_ = 0;
  double sum_ = 0;
};

// The least of the values that so many are not above (nearest rank). 0 of none.
// REQUIRES: sorted; 0 < share <= 1.
[[nodiscard]] double nearest_rank(const std::vector<double>& sorted, double share);

}  // namespace headroom::serving
