#include "formats/request_lengths.h"

#include <gtest/gtest.h>

namespace headroom::formats {
namespace {

TEST(RequestLengths, TheFormsThatPeoplePublish) {
  for (const char* text : {
           "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,374,44\n,396,109\n",
           "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
           "5,ChatGPT,374,44,418,Conversation log\n9,GPT-4,5,0,5,API log\n12,x,396,109,505,y\n",
           "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.3,396,109\n",
           "output_tokens,input_tokens\n44,374\n109,396\n",
           "{\"timestamp\": 0, \"input_length\": 374, \"output_length\": 44, \"hash_ids\": [1]}\n\n"
           "{\"timestamp\": 9, \"input_length\": 396, \"output_length\": 109, \"hash_ids\": []}",
       }) {
    const auto trace = parse_request_lengths(text, "trace");
    ASSERT_TRUE(trace) << trace.error().to_string();
    ASSERT_EQ(trace->requests.size(), 2U) << text;
    EXPECT_EQ(trace->requests[0].input_tokens, 374);
    EXPECT_EQ(trace->requests[0].output_tokens, 44);
    EXPECT_EQ(trace->requests[1].output_tokens, 109);
    EXPECT_EQ(trace->without_output, std::string(text).find("GPT-4") != std::string::npos);
  }
}

TEST(RequestLengths, WhatIsWrongIsNamedWithItsPlace) {
  for (const auto& [text, place] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a,b\n1,2\n", "trace:1"},
           {"input_tokens,output_tokens\n1,2\n-1,2\n", "trace:3"},
           {"input_tokens,output_tokens\n1,0\n", "trace"},
           {"{\"input_length\": 1, \"output_length\": 2}\n{\"input_length\": 1}\n", "trace:2"},
           {"{\"input_length\": 1e300, \"output_length\": 2}\n", "trace:1"},
           {"{", "trace:1"},
           {"", "trace"},
       }) {
    const auto bad = parse_request_lengths(text, "trace");
    ASSERT_FALSE(bad) << text;
    EXPECT_NE(bad.error().to_string().find(place), std::string::npos) << bad.error().to_string();
  }
}

}  // namespace
}  // namespace headroom::formats
