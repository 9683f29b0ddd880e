#include "serving/sse.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom::serving {
namespace {

std::vector<std::string> events_of(std::string_view bytes, size_t step) {
  SseParser parser;
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += step) {
    parser.feed(bytes.substr(at, step), [&](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

TEST(Sse, AnyCutGivesTheSameEvents) {
  const std::string bytes =
      "\xEF\xBB\xBF"
      "data: one\n\n"
      ": a comment\r\n"
      "event: x\r\ndata:two\r\ndata: lines\r\n\r\n"
      "id: 3\rdata\rdata:  three\r\r"
      "database: none\n\n\n"
      "data: cut off\n";
  const std::vector<std::string> expected = {"one", "two\nlines", "\n three"};
  for (size_t step = 1; step <= bytes.size(); ++step) {
    EXPECT_EQ(events_of(bytes, step), expected) << "in pieces of " << step;
  }
}

TEST(Sse, KnowsThatItIsInsideAnEvent) {
  SseParser parser;
  const auto ignore = [](std::string_view) {};
  EXPECT_FALSE(parser.is_inside());
  parser.feed("data: a\n", ignore);
  EXPECT_TRUE(parser.is_inside());
  parser.feed("\n", ignore);
  EXPECT_FALSE(parser.is_inside());
}

TEST(Sse, RefusesAnEndlessEvent) {
  for (const std::string& piece :
       {std::string(60'000, 'x'), "data: " + std::string(60'000, 'x') + "\n"}) {
    SseParser parser;
    int pieces = 0;
    while (parser.feed(piece, [](std::string_view) {}) && pieces < 1000) ++pieces;
    EXPECT_LE(pieces, 20);
    EXPECT_FALSE(parser.feed("\n\n", [](std::string_view) { FAIL() << "an event after all"; }));
  }
}

}  // namespace
}  // namespace headroom::serving
