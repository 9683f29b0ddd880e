#include "pack/comparison.h"

#include <gtest/gtest.h>

namespace headroom::pack {
namespace {

struct Block {
  std::string function;
  int64_t line = 0;
  int64_t size = 0;
};

// All blocks live at once in one segment.
PackAnswer recording_of_blocks(const std::string& file, const std::vector<Block>& blocks) {
  memory::CallSites sites;
  PackAnswer answer;
  answer.file = file;
  Recording recording;
  int64_t address = 0;
  for (const Block& block : blocks) {
    uint32_t stack = 0;
    if (!block.function.empty()) {
      const uint32_t frame = sites.add_frame(
          {sites.add_text(block.function), sites.add_text("/x/net/model.py"), block.line});
      stack = sites.add_stack(std::vector{frame});
    }
    PlannedRequest planned;
    planned.request = {0, 1, block.size};
    answer.requests.push_back(planned);
    recording.blocks.push_back({address, block.size, stack});
    address += block.size;
  }
  recording.held = {{0, address + 4096, 0, 1, 0, false}};
  recording.sites = SiteNames(std::move(sites));
  answer.recording = std::move(recording);
  answer.loss = loss_at_peak(answer.requests, *answer.recording);
  return answer;
}

TEST(Comparison, WhatGrewComesFirst) {
  const auto before = recording_of_blocks("a", {{"f", 1, 512}, {"g", 2, 1024}, {"h", 3, 512}});
  auto after =
      recording_of_blocks("b", {{"f", 1, 512}, {"g", 2, 1024}, {"g", 2, 4096}, {"k", 9, 512}});
  const auto comparison = compare(std::move(after), before);
  ASSERT_TRUE(comparison);
  EXPECT_TRUE(comparison->grew());
  EXPECT_EQ(comparison->allocated.growth(), Bytes(4096));
  ASSERT_EQ(comparison->sites.size(), 3U);
  EXPECT_EQ(comparison->sites[0].site, "net/model.py:2 g");
  EXPECT_EQ(comparison->sites[0].bytes.growth(), Bytes(4096));
  EXPECT_EQ(comparison->sites[0].blocks_after, 2U);
  EXPECT_EQ(comparison->sites[1].site, "net/model.py:9 k");
  EXPECT_EQ(comparison->sites[2].site, "net/model.py:3 h");
  EXPECT_EQ(comparison->sites[2].bytes.growth(), Bytes(-512));
}

// A line was added above: the same functions at other lines.
TEST(Comparison, MovedLinesAreMatched) {
  const auto before = recording_of_blocks("a", {{"f", 1, 512}, {"f", 2, 512}, {"g", 8, 1024}});
  auto after = recording_of_blocks("b", {{"f", 2, 512}, {"f", 3, 512}, {"g", 9, 1024}});
  const auto comparison = compare(std::move(after), before);
  ASSERT_TRUE(comparison);
  EXPECT_FALSE(comparison->grew());
  EXPECT_TRUE(comparison->sites.empty());
}

// What is new in a function that was there before.
TEST(Comparison, ANewLineKeepsIt) {
  const auto before = recording_of_blocks("a", {{"f", 1, 512}, {"f", 2, 512}});
  auto after = recording_of_blocks("b", {{"f", 1, 512}, {"f", 2, 512}, {"f", 3, 4096}});
  const auto comparison = compare(std::move(after), before);
  ASSERT_TRUE(comparison);
  ASSERT_EQ(comparison->sites.size(), 1U);
  EXPECT_EQ(comparison->sites[0].site, "net/model.py:3 f");
}

TEST(Comparison, WithoutStacksBySize) {
  const auto before = recording_of_blocks("a", {{"", 0, 512}});
  auto after = recording_of_blocks("b", {{"", 0, 512}, {"", 0, 2048}});
  const auto comparison = compare(std::move(after), before);
  ASSERT_TRUE(comparison);
  EXPECT_TRUE(comparison->is_by_size);
  ASSERT_EQ(comparison->sites.size(), 1U);
  EXPECT_EQ(comparison->sites[0].site, "blocks of 2.00 KiB");
}

TEST(Comparison, AnInstanceIsNoRecording) {
  EXPECT_FALSE(compare(PackAnswer{}, recording_of_blocks("a", {{"f", 1, 512}})));
}

}  // namespace
}  // namespace headroom::pack
