#include "memory/packing/held_memory.h"

#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

TraceEntry entry(TraceAction action, int64_t address, int64_t size) {
  TraceEntry made;
  made.action = action;
  made.address = address;
  made.size = size;
  return made;
}

SnapshotSegment segment(int64_t address, int64_t size) {
  SnapshotSegment made;
  made.address = address;
  made.total_size = size;
  return made;
}

TEST(HeldMemory, WhatIsThereWithoutAnEntryWasThereAllAlong) {
  Snapshot snapshot;
  snapshot.segments = {segment(4096, 2048)};
  snapshot.trace = {entry(TraceAction::alloc, 4096, 512)};
  const HeldMemory held = held_memory(snapshot);
  ASSERT_EQ(held.ranges.size(), 1U);
  EXPECT_EQ(held.ranges[0].lower, 0);
  EXPECT_EQ(held.ranges[0].upper, 2);
  EXPECT_EQ(held.contradictions, 0U);
}

TEST(HeldMemory, ASegmentThatCameAndWent) {
  Snapshot snapshot;
  snapshot.trace = {entry(TraceAction::segment_alloc, 0, 100), entry(TraceAction::alloc, 0, 100),
                    entry(TraceAction::segment_free, 0, 100),
                    entry(TraceAction::segment_alloc, 50, 100)};
  snapshot.segments = {segment(50, 100)};
  const HeldMemory held = held_memory(snapshot);
  ASSERT_EQ(held.ranges.size(), 2U);
  EXPECT_EQ(held.ranges[0].lower, 1);
  EXPECT_EQ(held.ranges[0].upper, 3);
  EXPECT_EQ(held.ranges[1].lower, 4);
  EXPECT_EQ(held.ranges[1].upper, 5);
  EXPECT_EQ(held.contradictions, 0U);
}

// One expandable segment at the end, mapped in three pieces, of which the middle was there before.
TEST(HeldMemory, PiecesOfAnExpandableSegmentHaveTimesOfTheirOwn) {
  Snapshot snapshot;
  snapshot.segments = {segment(0, 60)};
  snapshot.segments[0].is_expandable = true;
  snapshot.trace = {entry(TraceAction::segment_map, 0, 20), entry(TraceAction::segment_map, 40, 20),
                    entry(TraceAction::segment_unmap, 60, 20)};
  const HeldMemory held = held_memory(snapshot);
  ASSERT_EQ(held.ranges.size(), 4U);
  EXPECT_EQ(held.ranges[0].address, 20);  // all along
  EXPECT_EQ(held.ranges[0].upper, 4);
  EXPECT_EQ(held.ranges[1].address, 60);  // unmapped at the third entry
  EXPECT_EQ(held.ranges[1].upper, 3);
  EXPECT_EQ(held.ranges[2].address, 0);
  EXPECT_EQ(held.ranges[2].lower, 1);
  EXPECT_EQ(held.ranges[3].address, 40);
  EXPECT_EQ(held.ranges[3].lower, 2);
}

TEST(HeldMemory, ContradictionsAreCountedAndPassedOver) {
  Snapshot snapshot;
  snapshot.segments = {segment(0, 100), segment(50, 100), segment(-5, 10),
                       segment(int64_t{1} << 62, int64_t{1} << 62)};
  snapshot.trace = {entry(TraceAction::segment_alloc, 500, 10),
                    entry(TraceAction::segment_free, 10, 10)};
  const HeldMemory held = held_memory(snapshot);
  EXPECT_EQ(held.ranges.size(), 1U);
  EXPECT_EQ(held.contradictions, 5U);
}

}  // namespace
}  // namespace headroom::memory
