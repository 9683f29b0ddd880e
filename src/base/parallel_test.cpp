#include "base/parallel.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom {
namespace {

TEST(Parallel, DoesEveryPieceOnce) {
  for (const size_t threads : {0, 1, 2, 7}) {
    for (const size_t count : {0, 1, 2, 100}) {
      std::vector<int> done(count);
      for_each_in_parallel(count, threads, [&](size_t i) { ++done[i]; });
      EXPECT_EQ(done, std::vector<int>(count, 1)) << count << " on " << threads;
    }
  }
}

}  // namespace
}  // namespace headroom
