// The search for the highest rate, against servers that keep their targets up to a rate.
#include "batch/measured_load.h"

#include <gtest/gtest.h>

namespace headroom::batch {
namespace {

// Kept up to a rate.
RateVerdict verdict(double rate, double highest) {
  return rate <= highest ? RateVerdict::kept : RateVerdict::missed;
}

TEST(RateSearch, EndsBetweenTwoRatesThatAreNear) {
  for (const double highest : {1.2, 5.0, 33.0, 200.0}) {
    LiveQuestion live;
    live.window_seconds = 30;
    int runs = 0;
    std::optional<Error> error;
    const auto search = search_rate(
        live,
        [&](double rate) -> Result<RateVerdict> {
          ++runs;
          return verdict(rate, highest);
        },
        error);
    ASSERT_TRUE(search.kept && search.missed) << highest;
    EXPECT_LE(*search.kept, highest);
    EXPECT_GT(*search.missed, highest);
    EXPECT_LE(*search.missed, RateSearch::kNear * *search.kept);
    EXPECT_LE(runs, RateSearch::kMostRuns);
    EXPECT_FALSE(search.is_stopped);
  }
}

TEST(RateSearch, BelowTheLeastRateThereIsNothing) {
  LiveQuestion live;
  live.window_seconds = 30;
  std::optional<Error> error;
  const auto search = search_rate(
      live, [](double) -> Result<RateVerdict> { return RateVerdict::missed; }, error);
  EXPECT_FALSE(search.kept);
  EXPECT_DOUBLE_EQ(*search.missed, 1);
}

TEST(RateSearch, StopsInTimeAndWhereNothingIsEverTooMuch) {
  LiveQuestion live;
  live.most_seconds = -1;
  int runs = 0;
  std::optional<Error> error;
  const auto run = [&](double) -> Result<RateVerdict> {
    ++runs;
    return RateVerdict::kept;
  };
  EXPECT_TRUE(search_rate(live, run, error).is_stopped);
  EXPECT_EQ(runs, 1);
  live.most_seconds = 1000;
  const auto endless = search_rate(live, run, error);
  EXPECT_TRUE(endless.is_stopped);
  EXPECT_FALSE(endless.missed);
}

TEST(RateSearch, AnErrorEndsItWithWhatItHas) {
  std::optional<Error> error;
  const auto search = search_rate(
      {},
      [](double rate) -> Result<RateVerdict> {
        if (rate > 3) return Error{ErrorCode::unavailable, "it died", {}, {}};
        return RateVerdict::kept;
      },
      error);
  ASSERT_TRUE(error);
  EXPECT_DOUBLE_EQ(*search.kept, 2);
  EXPECT_TRUE(search.is_stopped);
}

// The server is not to blame for a generator that is too slow.
TEST(RateSearch, AVoidRunIsNoMissedRate) {
  std::optional<Error> error;
  const auto search = search_rate(
      {},
      [](double rate) -> Result<RateVerdict> {
        return rate > 3 ? RateVerdict::is_void : RateVerdict::kept;
      },
      error);
  EXPECT_DOUBLE_EQ(*search.kept, 2);
  EXPECT_FALSE(search.missed);
  EXPECT_DOUBLE_EQ(*search.is_void, 4);
  EXPECT_TRUE(search.is_stopped);
}

}  // namespace
}  // namespace headroom::batch
