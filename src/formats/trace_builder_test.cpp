#include "formats/trace_builder.h"

#include <gtest/gtest.h>

namespace headroom::formats {
namespace {

constexpr TracePlace kPlace{7, "row"};

TraceEvent event_at(TraceBuilder& builder, int64_t start_ns, int64_t duration_ns) {
  TraceEvent event;
  EXPECT_TRUE(builder.set_times(event, start_ns, duration_ns, kPlace));
  event.name = builder.intern("a");
  event.track = builder.track("1", "2", false);
  return event;
}

TEST(TraceBuilder, EventsComeInOrderWithTheLongerFirst) {
  TraceBuilder builder("file", "Kineto", {});
  for (const auto& [start, duration] : {std::pair{5, 1}, {3, 1}, {3, 4}}) {
    ASSERT_TRUE(builder.add(event_at(builder, start, duration), kPlace));
  }
  const Result<Trace> trace = builder.finish();
  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->events.size(), 3U);
  EXPECT_EQ(trace->events[0].duration_ns, 4);
  EXPECT_EQ(trace->events[1].start_ns, 3);
  EXPECT_EQ(trace->events[2].start_ns, 5);
}

TEST(TraceBuilder, TimesThatMakeNoSense) {
  TraceBuilder builder("file", "Kineto", {});
  TraceEvent event;
  EXPECT_FALSE(builder.set_times(event, std::nullopt, 1, kPlace));
  EXPECT_FALSE(builder.set_times(event, 1, std::nullopt, kPlace));
  EXPECT_FALSE(builder.set_times(event, 1, -1, kPlace));
  EXPECT_FALSE(builder.set_times(event, INT64_MIN, 1, kPlace));
  EXPECT_FALSE(builder.set_times(event, kMaxTraceNs, 1, kPlace));
  EXPECT_TRUE(builder.set_times(event, kMaxTraceNs, 0, kPlace));
  const Result<Trace> trace = builder.finish();
  ASSERT_FALSE(trace);  // there were events, and none of them can be read
  EXPECT_EQ(trace.error().where, "file: row 7");
  EXPECT_EQ(builder.trace().fault_count, 5);
}

TEST(TraceBuilder, ATrackIsKnownAgain) {
  TraceBuilder builder("file", "Kineto", {});
  const uint32_t thread = builder.track("1", "2", false);
  EXPECT_EQ(builder.track("1", "2", false), thread);
  EXPECT_NE(builder.track("1", "2", true), thread);
  EXPECT_NE(builder.track("12", "", false), builder.track("1", "2", false));
}

TEST(TraceBuilder, LimitsHold) {
  const auto add_two = [](const TraceLimits& limits) {
    TraceBuilder builder("file", "Kineto", limits);
    for (const char* word : {"first", "second"}) {
      TraceEvent event;
      event.name = builder.intern(word);
      event.track = builder.track("", word, false);
      const Result<void> added = builder.add(event, kPlace);
      if (!added) return false;
    }
    return true;
  };
  EXPECT_TRUE(add_two({}));
  EXPECT_FALSE(add_two({.events = 1}));
  EXPECT_FALSE(add_two({.tracks = 1}));
  EXPECT_FALSE(add_two({.names = 1}));
  EXPECT_FALSE(add_two({.name_bytes = 9}));
}

TEST(TraceBuilder, TextOfJsonIsMadePlainAndCut) {
  TraceBuilder builder("file", "Kineto", {.name = 4});
  EXPECT_EQ(builder.trace().names.at(builder.intern_json(R"(a\"b)")), "a\"b");
  EXPECT_EQ(builder.trace().names.at(builder.intern("abcdef")), "abcd");
}

}  // namespace
}  // namespace headroom::formats
