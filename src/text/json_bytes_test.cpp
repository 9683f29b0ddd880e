#include "text/json_bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom::text {
namespace {

// Every byte at every place of strings around the length of a block, beside a loop.
TEST(JsonBytes, FindWhatALoopFinds) {
  const auto loop = [](const std::string& text, size_t at, std::string_view marks) {
    while (at < text.size() && marks.find(text[at]) == std::string_view::npos) ++at;
    return at;
  };
  for (size_t size : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 31U, 33U, 40U}) {
    for (size_t place = 0; place < size; ++place) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string text(size, 'x');
        text[place] = static_cast<char>(byte);
        for (size_t at : {size_t{0}, place, place + 1}) {
          EXPECT_EQ(find_structure(text.data(), at, size), loop(text, at, "\"{}[]"));
          EXPECT_EQ(find_quote(text.data(), at, size), loop(text, at, "\"\\"));
          EXPECT_EQ(find_line_end(text.data(), at, size), loop(text, at, "\r\n"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace headroom::text
