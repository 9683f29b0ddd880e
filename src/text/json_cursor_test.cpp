#include "text/json_cursor.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

TEST(JsonCursor, VisitsMembersInOrder) {
  JsonCursor cursor(R"({"name": "a\"b", "dur" : 12.5, "args":{"grid":[1,2],"s":"x"}, "t":true})");
  ASSERT_TRUE(cursor.enter_object());
  std::string_view name;
  std::string_view value;
  ASSERT_TRUE(cursor.next_member(name));
  EXPECT_EQ(name, "name");
  ASSERT_TRUE(cursor.read_string(value));
  EXPECT_EQ(value, "a\\\"b");
  EXPECT_EQ(unescape(value), "a\"b");
  ASSERT_TRUE(cursor.next_member(name));
  EXPECT_EQ(cursor.kind(), '0');
  ASSERT_TRUE(cursor.read_raw(value));
  EXPECT_EQ(value, "12.5");
  ASSERT_TRUE(cursor.next_member(name));
  ASSERT_TRUE(cursor.enter_object());
  ASSERT_TRUE(cursor.next_member(name));
  ASSERT_TRUE(cursor.enter_array());
  for (const char* item : {"1", "2"}) {
    ASSERT_TRUE(cursor.next_item());
    ASSERT_TRUE(cursor.read_raw(value));
    EXPECT_EQ(value, item);
  }
  EXPECT_FALSE(cursor.next_item());
  ASSERT_TRUE(cursor.next_member(name));
  EXPECT_EQ(name, "s");
  ASSERT_TRUE(cursor.skip());
  EXPECT_FALSE(cursor.next_member(name));
  ASSERT_TRUE(cursor.next_member(name));
  EXPECT_EQ(name, "t");
  EXPECT_EQ(cursor.kind(), 't');
  ASSERT_TRUE(cursor.skip());
  EXPECT_FALSE(cursor.next_member(name));
  EXPECT_FALSE(cursor.failed());
}

// Reads all that is there; whether it was well formed.
bool visit(std::string_view text) {
  JsonCursor cursor(text);
  if (!cursor.enter_object()) return false;
  std::string_view name;
  while (cursor.next_member(name)) {
    if (!cursor.skip()) return false;
  }
  return !cursor.failed();
}

TEST(JsonCursor, FaultsAreNoticed) {
  EXPECT_TRUE(visit("{}"));
  EXPECT_TRUE(visit(R"({"a":[{}],"b":"\\"})"));
  for (const char* text : {"", "[", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1 \"b\":2}", "{\"a\":\"}",
                           "{\"a\":1", "{\"a\":[1}", "{a:1}", "{\"a\":1,,\"b\":2}"}) {
    EXPECT_FALSE(visit(text)) << text;
  }
}

TEST(JsonCursor, EscapesBecomeText) {
  EXPECT_EQ(unescape(R"(a\n\t\/\\\"\u00e9\u20AC\ud83d\ude00)"), "a\n\t/\\\"é€😀");
  EXPECT_EQ(unescape(R"(\ud83d)"), "\xEF\xBF\xBD");
  EXPECT_EQ(unescape(R"(\u12)"), "u12");
  EXPECT_EQ(unescape("end\\"), "end");
  EXPECT_TRUE(has_escape("a\\n"));
  EXPECT_FALSE(has_escape("a"));
}

TEST(FixedPoint, IsExactWhereADoubleIsNot) {
  EXPECT_EQ(fixed_point("5432101234567.123", 3), 5432101234567123);
  EXPECT_EQ(fixed_point("1712867402348256", 3), 1712867402348256000);
  EXPECT_EQ(fixed_point("68.0", 3), 68000);
  EXPECT_EQ(fixed_point("0.0004", 3), 0);
  EXPECT_EQ(fixed_point("0.0005", 3), 1);
  EXPECT_EQ(fixed_point("12.3456", 3), 12346);
  EXPECT_EQ(fixed_point("-3.5", 3), -3500);
  EXPECT_EQ(fixed_point("1.5e3", 3), 1'500'000);
  EXPECT_EQ(fixed_point("7", 0), 7);
  EXPECT_EQ(fixed_point("1.23456789", 2), 123);
}

TEST(FixedPoint, RefusesWhatIsNoNumber) {
  for (const char* text : {"", "-", ".5", "1.", "abc", "1x", "null", "99999999999999999999", "1e99",
                           "9223372036854775807", "NaN"}) {
    EXPECT_FALSE(fixed_point(text, 3)) << text;
  }
}

}  // namespace
}  // namespace headroom::text
