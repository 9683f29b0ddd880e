#include "memory/allocator_settings.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom::memory {
namespace {

AllocatorSettings parsed(std::string_view text) {
  auto result = parse_allocator_config(text);
  EXPECT_TRUE(result) << text;
  return result ? *result : AllocatorSettings{};
}

TEST(AllocatorSettings, DefaultsAreTorchs) {
  const AllocatorSettings settings = parsed("");
  EXPECT_EQ(settings.max_split_size_bytes, kUnlimited);
  EXPECT_EQ(settings.max_non_split_rounding_bytes, 20 * kMiB);
  EXPECT_EQ(settings.large_segment_size_bytes, 20 * kMiB);
  EXPECT_FALSE(settings.expandable_segments);
  EXPECT_FALSE(settings.memory_fraction);
}

TEST(AllocatorSettings, ReadsEveryKey) {
  const AllocatorSettings settings = parsed(
      "max_split_size_mb:128, max_non_split_rounding_mb:30,garbage_collection_threshold:0.5,"
      "expandable_segments:True,large_segment_size_mb:40,per_process_memory_fraction:0.9,"
      "backend:native,release_lock_on_cudamalloc:True,pinned_num_register_threads:8");
  EXPECT_EQ(settings.max_split_size_bytes, 128 * kMiB);
  EXPECT_EQ(settings.max_non_split_rounding_bytes, 30 * kMiB);
  EXPECT_DOUBLE_EQ(settings.garbage_collection_threshold, 0.5);
  EXPECT_TRUE(settings.expandable_segments);
  EXPECT_EQ(settings.large_segment_size_bytes, 40 * kMiB);
  EXPECT_DOUBLE_EQ(settings.memory_fraction.value_or(0), 0.9);
}

// The figures of c10's AllocatorConfigTest.
TEST(AllocatorSettings, ReadsDivisionLists) {
  const auto& table = parsed("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
                          .roundup_power2_divisions;
  for (size_t i = 0; i <= 6; ++i) EXPECT_EQ(table[i], 8) << i;  // 1 MiB to 64 MiB
  EXPECT_EQ(table[7], 2);
  EXPECT_EQ(table[8], 4);
  EXPECT_EQ(table[9], 2);
  EXPECT_EQ(table[10], 4);
  for (size_t i = 11; i < 16; ++i) EXPECT_EQ(table[i], 1) << i;
  const auto& all = parsed("roundup_power2_divisions:4").roundup_power2_divisions;
  for (const int64_t divisions : all) EXPECT_EQ(divisions, 4);
}

TEST(AllocatorSettings, RefusesNonsenseAndSaysWhere) {
  for (const char* const text : {"max_split_size_mb",
                                 "max_split_size_mb:",
                                 "max_split_size_mb:-1",
                                 "max_split_size_mb:19",
                                 "max_split_size_mb:99999999999999999999",
                                 "garbage_collection_threshold:1.0",
                                 "garbage_collection_threshold:nan",
                                 "expandable_segments:yes",
                                 "unknown:1",
                                 ":",
                                 ",",
                                 "[",
                                 "roundup_power2_divisions:[",
                                 "roundup_power2_divisions:[256:3]",
                                 "roundup_power2_divisions:[3:2]",
                                 "roundup_power2_divisions:[256:2",
                                 "backend:cudaMallocAsync",
                                 "expandable_segments:True;",
                                 "expandable_segments:True,,",
                                 "pinned_num_register_threads:["}) {
    const auto result = parse_allocator_config(text);
    ASSERT_FALSE(result) << text;
    EXPECT_NE(result.error().where.find("allocator settings"), std::string::npos) << text;
  }
  EXPECT_FALSE(parse_allocator_config(std::string(100000, ',')));
  const auto place = parse_allocator_config("expandable_segments:True,foo:1");
  ASSERT_FALSE(place);
  EXPECT_EQ(place.error().where, "allocator settings, byte 25");
}

TEST(RoundedSize, MultiplesOf512) {
  const AllocatorSettings settings;
  EXPECT_EQ(rounded_size(settings, 0), 512);
  EXPECT_EQ(rounded_size(settings, 1), 512);
  EXPECT_EQ(rounded_size(settings, 512), 512);
  EXPECT_EQ(rounded_size(settings, 513), 1024);
  EXPECT_EQ(rounded_size(settings, kMiB), kMiB);
  EXPECT_EQ(rounded_size(settings, kMaxRequest), kMaxRequest);
}

// PyTorch's own examples: 1200 with 4 divisions is 1280 where the divisions apply at all, which is
// above 512 * divisions.
TEST(RoundedSize, DivisionsOfPowersOfTwo) {
  const AllocatorSettings four = parsed("roundup_power2_divisions:4");
  EXPECT_EQ(rounded_size(four, 1200), 1536);  // not above 2048: plain rounding
  EXPECT_EQ(rounded_size(four, 1200 * 1024), 1280 * 1024);
  EXPECT_EQ(rounded_size(four, 1024 * 1024), 1024 * 1024);
  EXPECT_EQ(rounded_size(four, 1793 * 1024), 2048 * 1024);
  const AllocatorSettings one = parsed("roundup_power2_divisions:1");
  EXPECT_EQ(rounded_size(one, 1200 * 1024), 1200 * 1024);
  const AllocatorSettings two = parsed("roundup_power2_divisions:[1:2,2:8]");
  EXPECT_EQ(rounded_size(two, 1100 * 1024), 1536 * 1024);
  EXPECT_EQ(rounded_size(two, 2100 * 1024), 2304 * 1024);
}

TEST(SegmentSize, ThreeClasses) {
  const AllocatorSettings settings;
  EXPECT_EQ(segment_size_for(settings, 512), 2 * kMiB);
  EXPECT_EQ(segment_size_for(settings, kMiB), 2 * kMiB);
  EXPECT_EQ(segment_size_for(settings, kMiB + 512), 20 * kMiB);
  EXPECT_EQ(segment_size_for(settings, 10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(segment_size_for(settings, 10 * kMiB), 10 * kMiB);
  EXPECT_EQ(segment_size_for(settings, 10 * kMiB + 512), 12 * kMiB);
  EXPECT_EQ(segment_size_for(parsed("large_segment_size_mb:12"), 2 * kMiB), 12 * kMiB);
}

}  // namespace
}  // namespace headroom::memory
