#include "serving/kv_blocks.h"

#include <gtest/gtest.h>

#include <array>

namespace headroom::serving {
namespace {

constexpr std::array<uint64_t, 3> kHashes = {1, 2, 3};

TEST(KvBlocks, GroupsOfNobodyAreThereUntilTheirBlocksAreNeeded) {
  KvBlocks blocks(10, 2);
  EXPECT_TRUE(blocks.take({}, 7));
  for (const uint64_t hash : kHashes) EXPECT_TRUE(blocks.share(hash));
  EXPECT_FALSE(blocks.share(2));
  EXPECT_EQ(blocks.in_use(), 7);
  blocks.release(kHashes, 1);
  EXPECT_EQ(blocks.in_use(), 0);
  EXPECT_EQ(blocks.hits(kHashes), 3);
  EXPECT_TRUE(blocks.take({}, 5));  // four are free: one group goes, the last of its sequence
  EXPECT_EQ(blocks.hits(kHashes), 2);
  EXPECT_EQ(blocks.in_use(), 5);
}

TEST(KvBlocks, WhatIsNotToBeHadChangesNothing) {
  KvBlocks blocks(8, 2);
  ASSERT_TRUE(blocks.take({}, 6));
  for (const uint64_t hash : kHashes) blocks.share(hash);
  blocks.release(kHashes, 0);
  EXPECT_EQ(blocks.available(), 8);
  // Six of them are its own groups, so two are left.
  EXPECT_FALSE(blocks.take(kHashes, 3));
  EXPECT_FALSE(blocks.take(kHashes, 1, 2));
  EXPECT_EQ(blocks.available(), 8);
  EXPECT_EQ(blocks.hits(kHashes), 3);
  EXPECT_TRUE(blocks.take(kHashes, 2));
  EXPECT_EQ(blocks.available(), 0);
}

TEST(KvBlocks, AGroupIsUsedByAsManyAsTakeIt) {
  KvBlocks blocks(4, 2);
  ASSERT_TRUE(blocks.take({}, 2));
  blocks.share(1);
  const std::array<uint64_t, 1> one = {1};
  ASSERT_TRUE(blocks.take(one, 0));
  blocks.release(one, 0);
  EXPECT_EQ(blocks.in_use(), 2);
  blocks.release(one, 0);
  EXPECT_EQ(blocks.in_use(), 0);
}

}  // namespace
}  // namespace headroom::serving
