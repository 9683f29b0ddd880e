// The search for the highest rate, against servers that keep their targets up to a rate.
#include "batch/measured_load.h"

#include <gtest/gtest.h>

namespace headroom::batch {
namespace {

TEST(RateSearch, EndsBetweenTwoRatesThatAreNear) {
  for (const double highest : {1.2, 5.0, 33.0, 200.0}) {
    LiveQuestion live;
    live.window_seconds = 30;
    int runs = 0;
    const auto search = search_rate(live, [&](double rate) -> Result<bool> {
      ++runs;
      return rate <= highest;
    });
    ASSERT_TRUE(search);
    ASSERT_TRUE(search->kept && search->missed) << highest;
    EXPECT_LE(*search->kept, highest);
    EXPECT_GT(*search->missed, highest);
    EXPECT_LE(*search->missed, RateSearch::kNear * *search->kept);
    EXPECT_LE(runs, RateSearch::kMostRuns);
    EXPECT_FALSE(search->is_stopped);
  }
}

TEST(RateSearch, BelowTheLeastRateThereIsNothing) {
  LiveQuestion live;
  live.window_seconds = 30;
  const auto search = search_rate(live, [](double) -> Result<bool> { return false; });
  ASSERT_TRUE(search);
  EXPECT_FALSE(search->kept);
  EXPECT_DOUBLE_EQ(*search->missed, 1);
}

TEST(RateSearch, StopsInTimeAndWhereNothingIsEverTooMuch) {
  LiveQuestion live;
  live.most_seconds = -1;
  int runs = 0;
  const auto late = search_rate(live, [&](double) -> Result<bool> {
    ++runs;
    return true;
  });
  ASSERT_TRUE(late);
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(late->is_stopped);
  live.most_seconds = 1000;
  const auto endless = search_rate(live, [](double) -> Result<bool> { return true; });
  ASSERT_TRUE(endless);
  EXPECT_TRUE(endless->is_stopped);
  EXPECT_FALSE(endless->missed);
}

TEST(RateSearch, AServersErrorIsAnError) {
  const auto search = search_rate({}, [](double) -> Result<bool> {
    return Error{ErrorCode::unavailable, "it died", {}, {}};
  });
  ASSERT_FALSE(search);
}

}  // namespace
}  // namespace headroom::batch
