#include "fit/device/oom_probability.h"

#include <gtest/gtest.h>

namespace headroom::fit {
namespace {

constexpr Bytes kOffered{80 * kGiB};
constexpr Interval kOutside{Bytes(400 * kMiB), Bytes(550 * kMiB), Bytes(1000 * kMiB)};

double of(Bytes need) { return oom_probability(need, kOutside, kOffered); }

TEST(OomProbability, NothingIsSurerThanWhatWasMeasured) {
  EXPECT_DOUBLE_EQ(of(Bytes(0)), kLeastOomProbability);
  EXPECT_GT(of(kOffered), 0.95);
  EXPECT_DOUBLE_EQ(of(Bytes(1000 * kGiB)), 1 - kLeastOomProbability);
  EXPECT_LT(kLeastOomProbability, 0.01);
}

TEST(OomProbability, MoreNeedIsNeverLessProbable) {
  double before = 0;
  for (Bytes need(70 * kGiB); need < kOffered; need += Bytes(16 * kMiB)) {
    EXPECT_GE(of(need), before) << need.count;
    before = of(need);
  }
  EXPECT_GT(before, 0.9);
}

// Where errors are small beside it, the context's interval decides: half of runs have more of it
// than is expected, one in twenty more than its high.
TEST(OomProbability, TheContextsIntervalIsReadAsOneOfNinetyPercent) {
  constexpr Interval kWide{Bytes(10 * kGiB), Bytes(20 * kGiB), Bytes(60 * kGiB)};
  EXPECT_NEAR(oom_probability(Bytes(60 * kGiB), kWide, kOffered), 0.5, 0.03);
  EXPECT_NEAR(oom_probability(Bytes(20 * kGiB), kWide, kOffered), 0.05, 0.01);
  EXPECT_NEAR(oom_probability(Bytes(70 * kGiB), kWide, kOffered), 0.95, 0.03);
}

// A device of which no context is known, as of processors.
TEST(OomProbability, WithoutAContextTheErrorsDecide) {
  const auto bare = [](Bytes need) { return oom_probability(need, Interval{}, kOffered); };
  EXPECT_DOUBLE_EQ(bare(Bytes(78 * kGiB)), kLeastOomProbability);
  EXPECT_GT(bare(Bytes(79 * kGiB + 900 * kMiB)), 0.1);
  EXPECT_GT(bare(Bytes(81 * kGiB)), 0.9);
}

TEST(OomProbability, OutsideOfTheUndecidedNeedsNothingChanges) {
  const UndecidedNeeds needs = undecided_needs(kOutside, kOffered);
  ASSERT_LT(needs.low, needs.high);
  EXPECT_DOUBLE_EQ(of(needs.low), kLeastOomProbability);
  EXPECT_DOUBLE_EQ(of(needs.high), 1 - kLeastOomProbability);
  EXPECT_GT(of(needs.low + Bytes(kGiB)), kLeastOomProbability);
  // Of a device smaller than its context nothing is left.
  EXPECT_GE(undecided_needs(kOutside, Bytes(100 * kMiB)).low, Bytes(0));
}

}  // namespace
}  // namespace headroom::fit
