#include "pack/loss.h"

#include <gtest/gtest.h>

#include "pack/answer.h"

namespace headroom::pack {
namespace {

struct Block {
  int64_t lower, upper, address, size;
  uint32_t stack = 0;
};

struct Case {
  std::vector<PlannedRequest> requests;
  Recording recording;
};

Case make(int64_t end, const std::vector<memory::HeldRange>& held,
          const std::vector<Block>& blocks) {
  Case made;
  made.recording.end = end;
  made.recording.held = held;
  for (const Block& block : blocks) {
    PlannedRequest request;
    request.request = {block.lower, block.upper, block.size - 100};
    made.requests.push_back(request);
    made.recording.blocks.push_back({block.address, block.size, block.stack});
  }
  return made;
}

// Two segments from moment 1 on; both are fullest at moment 3.
TEST(LossAtPeak, TheFullestMomentOfTheTimeInWhichMostIsHeld) {
  const Case made =
      make(6, {{0, 10'000, 0, 6, 0, false}, {50'000, 10'000, 1, 6, 0, false}},
           {{0, 6, 1'000, 2'000}, {2, 5, 5'000, 1'000}, {3, 4, 50'000, 512}, {0, 1, 7'000, 3'000}});
  const auto loss = loss_at_peak(made.requests, made.recording);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->moment, 3);
  EXPECT_EQ(loss->reserved, Bytes(20'000));
  EXPECT_EQ(loss->allocated, Bytes(3'512));
  EXPECT_EQ(loss->requested, Bytes(3'212));
  EXPECT_EQ(loss->stranded, Bytes(20'000 - 3'512));
  EXPECT_EQ(loss->cached, Bytes(0));
  ASSERT_EQ(loss->segments.size(), 2U);
  EXPECT_EQ(loss->segments[0].address, 50'000);
  EXPECT_EQ(loss->segments[0].stranded, Bytes(9'488));
  EXPECT_EQ(loss->segments[1].largest_gap, Bytes(4'000));
  EXPECT_EQ(loss->homeless_blocks, 0U);
}

TEST(LossAtPeak, AFailureIsTheMomentThatCounts) {
  Case made = make(4, {{0, 10'000, 0, 4, 0, false}}, {{1, 2, 0, 9'000}, {0, 4, 9'000, 512}});
  made.recording.failures.push_back({3, Bytes(50), Bytes(7), 0});
  const auto loss = loss_at_peak(made.requests, made.recording);
  ASSERT_TRUE(loss && loss->failure);
  EXPECT_EQ(loss->moment, 3);
  EXPECT_EQ(loss->allocated, Bytes(512));
  EXPECT_EQ(loss->failure->tried, Bytes(50));
}

// As in a search for a batch size: the run is about what it held later.
TEST(LossAtPeak, AFailureThatWasCaughtIsNotTheMoment) {
  Case made = make(6, {{0, 10'000, 0, 6, 0, false}}, {{0, 2, 0, 1'000}, {3, 5, 1'000, 8'000}});
  made.recording.failures.push_back({1, Bytes(50), Bytes(7), 0});
  const auto loss = loss_at_peak(made.requests, made.recording);
  ASSERT_TRUE(loss);
  EXPECT_FALSE(loss->failure);
  EXPECT_EQ(loss->allocated, Bytes(8'000));
  // The last one ends it.
  made.recording.failures.push_back({4, Bytes(90), Bytes(7), 0});
  const auto ended = loss_at_peak(made.requests, made.recording);
  ASSERT_TRUE(ended && ended->failure);
  EXPECT_EQ(ended->moment, 4);
  EXPECT_EQ(ended->failure->tried, Bytes(90));
}

// PyTorch splits a block of a large segment only where more than 1 MiB is left.
TEST(LossAtPeak, ARestThatWasNotSplitOffIsTheBlocks) {
  const int64_t size = 40 * kMiB;
  const std::vector<Block> blocks{{0, 2, 0, 20 * kMiB}, {0, 2, 21 * kMiB, 17 * kMiB}};
  const auto loss = [&](bool is_expandable) {
    const Case made = make(2, {{0, size, 0, 2, 0, is_expandable}}, blocks);
    return *loss_at_peak(made.requests, made.recording);
  };
  EXPECT_EQ(loss(false).allocated, Bytes(38 * kMiB));
  EXPECT_EQ(loss(false).stranded, Bytes(2 * kMiB));
  EXPECT_EQ(loss(false).segments.front().largest_gap, Bytes(2 * kMiB));
  EXPECT_EQ(loss(false).requested, Bytes(37 * kMiB - 200));
  // An expandable one is split whatever is left.
  EXPECT_EQ(loss(true).allocated, Bytes(37 * kMiB));
  EXPECT_EQ(loss(true).stranded, Bytes(3 * kMiB));
}

// Nothing was recorded but the end: what was released on the way to it no longer lives.
TEST(LossAtPeak, WithoutHistoryThereIsOnlyTheEnd) {
  Case made = make(3, {{0, 10'000, 0, 3, 0, false}}, {{0, 1, 0, 4'000}, {0, 3, 4'000, 512}});
  EXPECT_FALSE(loss_at_peak(made.requests, made.recording)->is_end_state);
  made.recording.has_history = false;
  const auto loss = loss_at_peak(made.requests, made.recording);
  ASSERT_TRUE(loss);
  EXPECT_TRUE(loss->is_end_state);
  EXPECT_EQ(loss->moment, 2);
  EXPECT_EQ(loss->allocated, Bytes(512));
}

TEST(LossAtPeak, PiecesOfAnExpandableSegmentAreOne) {
  const Case made = make(2,
                         {{0, 100, 0, 2, 0, true},
                          {100, 100, 0, 2, 0, true},
                          {200, 100, 0, 2, 1, true},
                          {300, 100, 0, 2, 1, false}},
                         {{0, 2, 50, 100}});
  const auto loss = loss_at_peak(made.requests, made.recording);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->segments.size(), 3U);
  EXPECT_EQ(loss->stranded, Bytes(100));
  EXPECT_EQ(loss->cached, Bytes(200));
}

// Overlapping blocks, and blocks in no segment, are counted and not believed.
TEST(LossAtPeak, ContradictionsArePassedOver) {
  const Case made =
      make(2, {{100, 100, 0, 2, 0, false}},
           {{0, 2, 100, 50}, {0, 2, 120, 50}, {0, 2, 10, 20}, {0, 2, 190, 50}, {0, 2, 900, 50}});
  const auto loss = loss_at_peak(made.requests, made.recording);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->allocated, Bytes(50));
  EXPECT_EQ(loss->homeless_blocks, 4U);
}

TEST(LossAtPeak, NothingHeldNothingLost) {
  const Case made = make(1, {}, {});
  EXPECT_FALSE(loss_at_peak(made.requests, made.recording));
}

}  // namespace
}  // namespace headroom::pack
