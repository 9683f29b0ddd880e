#include "memory/packing/recorded_requests.h"

#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

constexpr int64_t kAddress = 0x7f0000000000;

TraceEntry entry(TraceAction action, int64_t address, int64_t size) {
  TraceEntry made;
  made.action = action;
  made.address = address;
  made.size = size;
  return made;
}

TEST(RecordedRequests, WhatOnlyTheEndShowsWasThereAllAlong) {
  Snapshot snapshot;
  SnapshotSegment segment;
  segment.address = kAddress;
  segment.total_size = 2 << 20;
  SnapshotBlock block;
  block.address = kAddress;
  block.size = block.requested = 1024;
  block.state = BlockState::allocated;
  segment.blocks.push_back(block);
  snapshot.segments.push_back(segment);
  snapshot.trace.push_back(entry(TraceAction::snapshot, 0, 1024));
  const RecordedRequests found = recorded_requests(snapshot);
  ASSERT_EQ(found.requests.size(), 1U);
  EXPECT_EQ(found.at_start, 1U);
  EXPECT_EQ(found.contradictions, 0U);
  EXPECT_EQ(found.requests[0].lower, 0);
}

TEST(RecordedRequests, TwoAllocationsAtOneAddressContradictEachOther) {
  Snapshot snapshot;
  snapshot.trace.push_back(entry(TraceAction::alloc, kAddress, 512));
  snapshot.trace.push_back(entry(TraceAction::alloc, kAddress, 1024));
  snapshot.trace.push_back(entry(TraceAction::free_completed, kAddress, 1024));
  const RecordedRequests found = recorded_requests(snapshot);
  EXPECT_EQ(found.contradictions, 1U);
  ASSERT_EQ(found.requests.size(), 2U);
  EXPECT_LE(found.requests[0].upper, found.requests[1].lower);
}

}  // namespace
}  // namespace headroom::memory
