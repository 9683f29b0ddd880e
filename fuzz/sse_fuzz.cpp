// Streamed answers: any bytes, in any pieces, give the same events; each is read or called
// malformed, and no count is negative.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "serving/completion_chunk.h"
#include "serving/sse.h"

namespace {

std::vector<std::string> events_of(std::string_view bytes, size_t step) {
  headroom::serving::SseParser parser;
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += step) {
    parser.feed(bytes.substr(at, step), [&](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0] % 16;  // the first byte says how the rest is cut
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<std::string> events = events_of(text, std::max<size_t>(1, text.size()));
  HEADROOM_CHECK(events == events_of(text, step), "pieces make other events");
  for (const std::string& event : events) {
    const auto chunk = headroom::serving::read_completion_chunk(event);
    HEADROOM_CHECK(chunk.prompt_tokens.value_or(0) >= 0, "a count");
    HEADROOM_CHECK(chunk.completion_tokens.value_or(0) >= 0, "a count");
    HEADROOM_CHECK(!chunk.is_visible || chunk.has_token, "what is seen is a token");
  }
  HEADROOM_CHECK(headroom::serving::error_words(text).size() <= 1024, "words that are bounded");
  return 0;
}
