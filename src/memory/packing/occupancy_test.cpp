#include "memory/packing/occupancy.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace headroom::memory {
namespace {

// Every address of every section, one by one.
class Naive {
 public:
  [[nodiscard]] int64_t lowest_fit(uint32_t begin, uint32_t end, int64_t size) const {
    for (int64_t offset = 0;; ++offset) {
      bool is_free = true;
      for (uint32_t s = begin; s < end && is_free; ++s) {
        for (int64_t k = 0; k < size && is_free; ++k) is_free = !taken_.contains({s, offset + k});
      }
      if (is_free) return offset;
    }
  }
  void take(uint32_t begin, uint32_t end, int64_t offset, int64_t size) {
    for (uint32_t s = begin; s < end; ++s) {
      for (int64_t k = 0; k < size; ++k) taken_.insert({s, offset + k});
    }
  }

 private:
  std::set<std::pair<uint32_t, int64_t>> taken_;
};

TEST(Occupancy, FindsWhatAScanFinds) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto sections = static_cast<uint32_t>(1 + random() % 21);
    Occupancy occupancy(sections);
    Naive naive;
    Naive marked;
    for (int step = 0; step < 60; ++step) {
      const auto begin = static_cast<uint32_t>(random() % sections);
      const auto end = static_cast<uint32_t>(begin + 1 + random() % (sections - begin));
      const auto size = static_cast<int64_t>(1 + random() % 5);
      const int64_t offset = naive.lowest_fit(begin, end, size);
      ASSERT_EQ(occupancy.lowest_fit(begin, end, size), offset) << "seed " << seed;
      occupancy.take(begin, end, offset, size);
      naive.take(begin, end, offset, size);
      if (step == 20) {
        occupancy.mark();
        marked = naive;
      }
      if (step == 40) {
        occupancy.reset();
        naive = marked;
      }
    }
  }
}

}  // namespace
}  // namespace headroom::memory
