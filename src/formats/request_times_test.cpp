#include "formats/request_times.h"

#include <gtest/gtest.h>

#include "formats/request_lengths.h"

namespace headroom::formats {
namespace {

TEST(RequestTimes, DatesAndSeconds) {
  EXPECT_EQ(*seconds_of_timestamp("1970-01-01 00:00:00"), 0);
  EXPECT_EQ(*seconds_of_timestamp("2000-02-29T12:00:00"), 951825600);  // date -d ... +%s
  EXPECT_NEAR(*seconds_of_timestamp("2023-11-16 18:17:03.9799600"), 1700158623.97996, 1e-6);
  EXPECT_NEAR(*seconds_of_timestamp("2024-05-10 00:00:00.009930+00:00"), 1715299200.00993, 1e-6);
  EXPECT_EQ(*seconds_of_timestamp("2024-05-10T02:00:00+02:00"), 1715299200);
  EXPECT_EQ(*seconds_of_timestamp("2024-05-09T22:30:00-0130"), 1715299200);
  EXPECT_EQ(*seconds_of_timestamp("2024-05-10T00:00:00Z"), 1715299200);
  EXPECT_EQ(*seconds_of_timestamp("45.5"), 45.5);
}

TEST(RequestTimes, WhatIsNoTimeIsNone) {
  for (const char* words :
       {"", "-5", "nan", "inf", "1e300", "2023-11-16", "2023-13-01 00:00:00", "2023-00-01 00:00:00",
        "2023-01-01 24:00:00", "2023-01-01 00:00:00.", "2023-01-01 00:00:00 CET", "20230101 000000",
        "2023-01-01 00:00:00+", "2023-01-01 00:00:00+0x:00", "-023-01-01 00:00:00",
        "2023-1-1 0:0:0", "2023-01-01 00:00:-1"}) {
    EXPECT_FALSE(seconds_of_timestamp(words)) << words;
  }
}

RequestTrace parsed(const char* text) {
  auto trace = parse_request_lengths(text, "trace");
  HEADROOM_CHECK(trace.has_value(), "a trace");
  return *std::move(trace);
}

TEST(RequestTimes, RequestsAreInTheOrderInWhichTheyCame) {
  const RequestTrace trace = parsed(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:05.5,1,10\n"
      "2023-11-16 18:17:03.0,2,0\n2023-11-16 18:17:04.5,3,30\n2023-11-16 18:17:05.5,4,40\n");
  ASSERT_EQ(trace.requests.size(), 3U);
  EXPECT_EQ(trace.requests[0].input_tokens, 3);
  EXPECT_EQ(trace.requests[1].input_tokens, 1);
  EXPECT_EQ(trace.requests[2].input_tokens, 4);
  EXPECT_EQ(trace.times.arrived_seconds, (std::vector<double>{0, 1, 1}));
}

TEST(RequestTimes, EachFormHasItsOwn) {
  for (const char* text : {"Timestamp,Model,Request tokens,Response tokens\n5,x,1,2\n7.5,x,3,4\n",
                           "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,1,2\n3.0,3,4\n",
                           "arrival_seconds,input_tokens,output_tokens\n0,1,2\n2.5,3,4\n",
                           "{\"timestamp\": 1000, \"input_length\": 1, \"output_length\": 2}\n"
                           "{\"timestamp\": 3500, \"input_length\": 3, \"output_length\": 4}\n"}) {
    EXPECT_EQ(parsed(text).times.arrived_seconds, (std::vector<double>{0, 2.5})) << text;
  }
}

TEST(RequestTimes, ATimeThatIsMissingMakesAllUseless) {
  const RequestTrace trace = parsed("Timestamp,Request tokens,Response tokens\n1,5,6\n,7,8\n");
  EXPECT_TRUE(trace.times.arrived_seconds.empty());
  EXPECT_EQ(trace.times.without_times, "trace:3 has no time");
  EXPECT_FALSE(parsed("Timestamp,Request tokens,Response tokens\n1,5,6\n1,7,8\n")
                   .times.without_times.empty());
  EXPECT_TRUE(parsed("input_tokens,output_tokens\n5,6\n").times.without_times.empty());
}

TEST(RequestTimes, HashesGoWithTheirRequests) {
  const RequestTrace trace = parsed(
      "{\"timestamp\": 9, \"input_length\": 1025, \"output_length\": 2, \"hash_ids\": [1, 2, 4]}\n"
      "{\"timestamp\": 3, \"input_length\": 600, \"output_length\": 2, \"hash_ids\": [1, 3]}\n");
  EXPECT_EQ(trace.times.hash_tokens, 512);
  EXPECT_EQ(trace.times.first_hash, (std::vector<size_t>{0, 2, 5}));
  EXPECT_EQ(trace.times.hashes, (std::vector<uint64_t>{1, 3, 1, 2, 4}));
}

TEST(RequestTimes, HashesOfOtherBlocksAreNotUsed) {
  const RequestTrace trace = parsed(
      "{\"timestamp\": 1, \"input_length\": 1025, \"output_length\": 2, \"hash_ids\": [1]}\n"
      "{\"timestamp\": 2, \"input_length\": 600, \"output_length\": 2, \"hash_ids\": [1, 3]}\n");
  EXPECT_TRUE(trace.times.hashes.empty());
  EXPECT_FALSE(trace.times.without_hashes.empty());
  EXPECT_EQ(trace.times.arrived_seconds.size(), 2U);
  const auto bad = parse_request_lengths(
      R"({"input_length": 1, "output_length": 2, "hash_ids": [-1]})", "trace");
  EXPECT_FALSE(bad);
}

}  // namespace
}  // namespace headroom::formats
