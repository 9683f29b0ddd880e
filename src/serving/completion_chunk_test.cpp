#include "serving/completion_chunk.h"

#include <gtest/gtest.h>

namespace headroom::serving {
namespace {

TEST(CompletionChunk, TokensOfBothPaths) {
  EXPECT_TRUE(read_completion_chunk(R"({"choices":[{"text":" a","index":0}]})").has_token);
  EXPECT_FALSE(read_completion_chunk(R"({"choices":[{"text":"","index":0}]})").has_token);
  const auto role =
      read_completion_chunk(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})");
  EXPECT_FALSE(role.has_token);
  const auto word = read_completion_chunk(R"({"choices":[{"delta":{"content":"a"}}]})");
  EXPECT_TRUE(word.has_token && word.is_visible);
}

TEST(CompletionChunk, ReasoningAndToolCallsAreTokensThatNobodySees) {
  for (const char* data : {R"({"choices":[{"delta":{"reasoning_content":"hm","content":null}}]})",
                           R"({"choices":[{"delta":{"reasoning":"hm"}}]})",
                           R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})"}) {
    const CompletionChunk chunk = read_completion_chunk(data);
    EXPECT_TRUE(chunk.has_token) << data;
    EXPECT_FALSE(chunk.is_visible) << data;
  }
  EXPECT_FALSE(read_completion_chunk(R"({"choices":[{"delta":{"tool_calls":[]}}]})").has_token);
}

TEST(CompletionChunk, UsageAndTheEnd) {
  const auto usage = read_completion_chunk(
      R"({"choices":[],"usage":{"prompt_tokens":161,"total_tokens":499,"completion_tokens":338}})");
  EXPECT_EQ(usage.prompt_tokens, 161);
  EXPECT_EQ(usage.completion_tokens, 338);
  EXPECT_FALSE(usage.cached_tokens);
  EXPECT_EQ(
      read_completion_chunk(
          R"({"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8,"a":[]}}})")
          .cached_tokens,
      8);
  EXPECT_FALSE(read_completion_chunk(R"({"usage":{"prompt_tokens_details":null}})").cached_tokens);
  EXPECT_FALSE(read_completion_chunk(R"({"choices":[],"usage":null})").prompt_tokens);
  EXPECT_FALSE(read_completion_chunk(R"({"usage":{"prompt_tokens":-3}})").prompt_tokens);
  EXPECT_FALSE(read_completion_chunk(R"({"usage":{"prompt_tokens":"7"}})").prompt_tokens);
  EXPECT_TRUE(read_completion_chunk("[DONE]").is_end);
  EXPECT_TRUE(
      read_completion_chunk(R"({"choices":[{"text":"","finish_reason":"length"}]})").is_finish);
  EXPECT_FALSE(
      read_completion_chunk(R"({"choices":[{"text":"a","finish_reason":null}]})").is_finish);
}

TEST(CompletionChunk, ErrorsAndNonsense) {
  EXPECT_EQ(read_completion_chunk(R"({"error":{"message":"full"}})").error, "full");
  EXPECT_EQ(read_completion_chunk(R"({"error":"full"})").error, "full");
  EXPECT_FALSE(read_completion_chunk(R"({"error":null,"choices":[]})").error);
  for (const char* data : {"", "hello", "[1]", "{\"choices\":[{\"text\":", "{\"choices\" 3}"}) {
    EXPECT_TRUE(read_completion_chunk(data).is_malformed) << data;
  }
  EXPECT_EQ(error_words(R"({"object":"error","message":"too long"})"), "too long");
  EXPECT_EQ(error_words(R"({"error":{"message":"busy"}})"), "busy");
  EXPECT_EQ(error_words("<html>"), "");
}

}  // namespace
}  // namespace headroom::serving
