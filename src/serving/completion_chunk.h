// One event of a streamed answer, /v1/completions or /v1/chat/completions: whether it brings a
// token, what it says of lengths, and whether it is an error.
//
// Text of an answer, of reasoning and of tool calls all count as tokens; a chat's first delta,
// which names the role and is empty, does not. Read in place by JsonCursor, without building
// values: some hundred nanoseconds. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::serving {

struct CompletionChunk {
  bool is_end = false;                                  // [DONE]
  bool is_malformed = false;                            // not JSON, or not an object
  bool has_token = false;                               // of any kind
  bool is_visible = false;                              // of the answer itself, not of reasoning
  bool is_finish = false;                               // says why the answer ended
  std::optional<int64_t> prompt_tokens = std::nullopt;  // of usage
  std::optional<int64_t> completion_tokens = std::nullopt;  // of usage
  std::optional<int64_t> cached_tokens = std::nullopt;      // of it, of the prompt: not read again
  std::optional<std::string> error = std::nullopt;          // the server's words, at most 200 bytes
};

[[nodiscard]] CompletionChunk read_completion_chunk(std::string_view data);

// The words of an error that a server gave as the body of a refusal; "" where there are none.
[[nodiscard]] std::string error_words(std::string_view body);

}  // namespace headroom::serving
