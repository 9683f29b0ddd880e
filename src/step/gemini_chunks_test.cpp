#include "step/gemini_chunks.h"

#include <gtest/gtest.h>

namespace headroom::step {
namespace {

// Sizes as small as a head can hold; the plugin's own are millions.
constexpr ChunkSearch kSmall{.least_elements = 10, .range = 6, .distance = 2};

TEST(GeminiChunks, TheFirstOfTheLeastWasteWins) {
  // 10 holds 6, 6, 6 4, of which 8 stay empty; 12 holds 6 6, 6 4: 2; 14 leaves 6, 16 leaves 10.
  const auto sizes = chunk_sizes({{2, {6, 6, 6, 4}}}, kSmall);
  ASSERT_EQ(sizes.size(), 1U);
  EXPECT_EQ(sizes[0].elements, 12);
  EXPECT_FALSE(sizes[0].stays_whole);
}

TEST(GeminiChunks, AChunkIsAMultipleOfAllRanksThatShareOne) {
  const auto sizes = chunk_sizes({{2, {6, 6, 6, 4}}, {5, {10, 2}}}, kSmall);
  EXPECT_EQ(sizes[0].elements % 10, 0);
  EXPECT_EQ(sizes[1].elements, sizes[0].elements);
}

TEST(GeminiChunks, WhatIsVeryLargeDecidesNothing) {
  std::vector<int64_t> sizes(20, 6);
  sizes.push_back(1'000);
  // Without the largest: of 12 each none is wasted.
  EXPECT_EQ(chunk_sizes({{1, sizes}}, kSmall)[0].elements, 12);
  // Of few it is not beyond three standard deviations.
  EXPECT_EQ(chunk_sizes({{1, {6, 6, 1'000}}}, kSmall)[0].elements, 1'000);
}

TEST(GeminiChunks, LittleStaysWholeAndSoDoesWhatNobodyShares) {
  const auto sizes = chunk_sizes({{4, {3, 4}}, {1, {6, 6}}, {2, {}}}, kSmall);
  EXPECT_EQ(sizes[0].elements, 7);
  EXPECT_TRUE(sizes[0].stays_whole);
  EXPECT_EQ(sizes[1].elements, 12);
  EXPECT_TRUE(sizes[1].stays_whole);
  EXPECT_EQ(sizes[2].elements, 0);
}

}  // namespace
}  // namespace headroom::step
