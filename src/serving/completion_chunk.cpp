#include "serving/completion_chunk.h"

#include "text/json_cursor.h"

namespace headroom::serving {
namespace {

using text::JsonCursor;

constexpr size_t kMostErrorBytes = 200;

std::optional<int64_t> count_of(JsonCursor& cursor) {
  std::string_view raw;
  const bool is_number = cursor.kind() == '0';
  if (!cursor.read_raw(raw) || !is_number) return std::nullopt;
  constexpr int64_t kMost = 1'000'000'000;
  const std::optional<int64_t> value = text::fixed_point(raw, 0);
  if (!value || *value < 0 || *value > kMost) return std::nullopt;
  return value;
}

// Whether a string that is not empty, or an array that is not, stands here.
bool has_content(JsonCursor& cursor) {
  const char kind = cursor.kind();
  if (kind == '"') {
    std::string_view raw;
    return cursor.read_string(raw) && !raw.empty();
  }
  if (kind == '[') {
    std::string_view raw;
    return cursor.read_raw(raw) && raw.find('{') != std::string_view::npos;
  }
  cursor.skip();
  return false;
}

// OpenAI's prompt_tokens_details.
void read_prompt_details(JsonCursor& cursor, CompletionChunk& chunk) {
  if (cursor.kind() != '{') {
    cursor.skip();
    return;
  }
  cursor.enter_object();
  for (std::string_view name; cursor.next_member(name);) {
    if (name == "cached_tokens") {
      chunk.cached_tokens = count_of(cursor);
    } else {
      cursor.skip();
    }
  }
}

void read_usage(JsonCursor& cursor, CompletionChunk& chunk) {
  if (cursor.kind() != '{') {
    cursor.skip();
    return;
  }
  cursor.enter_object();
  for (std::string_view name; cursor.next_member(name);) {
    if (name == "prompt_tokens") {
      chunk.prompt_tokens = count_of(cursor);
    } else if (name == "completion_tokens") {
      chunk.completion_tokens = count_of(cursor);
    } else if (name == "prompt_tokens_details") {
      read_prompt_details(cursor, chunk);
    } else {
      cursor.skip();
    }
  }
}

void read_delta(JsonCursor& cursor, CompletionChunk& chunk) {
  if (cursor.kind() != '{') {
    cursor.skip();
    return;
  }
  cursor.enter_object();
  for (std::string_view name; cursor.next_member(name);) {
    const bool is_hidden =
        name == "reasoning_content" || name == "reasoning" || name == "tool_calls";
    if (name != "content" && !is_hidden) {
      cursor.skip();
    } else if (has_content(cursor)) {
      chunk.has_token = true;
      chunk.is_visible = chunk.is_visible || !is_hidden;
    }
  }
}

void read_choice(JsonCursor& cursor, CompletionChunk& chunk) {
  if (cursor.kind() != '{') {
    cursor.skip();
    return;
  }
  cursor.enter_object();
  for (std::string_view name; cursor.next_member(name);) {
    if (name == "delta") {
      read_delta(cursor, chunk);
    } else if (name == "text") {
      if (has_content(cursor)) chunk.has_token = chunk.is_visible = true;
    } else if (name == "finish_reason") {
      chunk.is_finish = has_content(cursor) || chunk.is_finish;
    } else {
      cursor.skip();
    }
  }
}

void read_choices(JsonCursor& cursor, CompletionChunk& chunk) {
  if (cursor.kind() != '[') {
    cursor.skip();
    return;
  }
  cursor.enter_array();
  while (cursor.next_item()) read_choice(cursor, chunk);
}

// An error is a string, or an object with a message.
std::optional<std::string> read_error(JsonCursor& cursor) {
  std::string_view raw;
  if (cursor.kind() == '"') {
    cursor.read_string(raw);
    return text::unescape(raw.substr(0, kMostErrorBytes));
  }
  if (cursor.kind() != '{') {
    cursor.skip();
    return std::nullopt;
  }
  std::string words = "an error without words";
  cursor.enter_object();
  for (std::string_view name; cursor.next_member(name);) {
    if (name == "message" && cursor.kind() == '"') {
      cursor.read_string(raw);
      words = text::unescape(raw.substr(0, kMostErrorBytes));
    } else {
      cursor.skip();
    }
  }
  return words;
}

}  // namespace

CompletionChunk read_completion_chunk(std::string_view data) {
  CompletionChunk chunk;
  if (data == "[DONE]") {
    chunk.is_end = true;
    return chunk;
  }
  JsonCursor cursor(data);
  if (cursor.kind() != '{') {
    chunk.is_malformed = true;
    return chunk;
  }
  cursor.enter_object();
  for (std::string_view name; cursor.next_member(name);) {
    if (name == "choices") {
      read_choices(cursor, chunk);
    } else if (name == "usage") {
      read_usage(cursor, chunk);
    } else if (name == "error") {
      chunk.error = read_error(cursor);
    } else {
      cursor.skip();
    }
  }
  chunk.is_malformed = cursor.failed();
  return chunk;
}

std::string error_words(std::string_view body) {
  JsonCursor cursor(body);
  if (cursor.kind() != '{') return {};
  cursor.enter_object();
  std::string words;
  for (std::string_view name; cursor.next_member(name);) {
    const bool is_words = name == "error" || name == "message" || name == "detail";
    if (!is_words) {
      cursor.skip();
    } else if (const auto said = read_error(cursor); said && words.empty()) {
      words = *said;
    }
  }
  return words;
}

}  // namespace headroom::serving
