#include "text/wire_message.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headroom::text {
namespace {

using namespace std::string_literals;

// Numbers of the fields, "!" where the bytes are no message.
std::string numbers(const std::string& bytes) {
  WireMessage message(bytes);
  WireField field;
  std::string found;
  while (message.next(field)) found += std::to_string(field.number) + " ";
  return found + (message.failed() ? "!" : "");
}

TEST(WireMessage, ReadsTheExamplesOfTheEncodingPage) {
  const std::string bytes = "\x08\x96\x01\x12\x07testing"s;
  WireMessage message(bytes, 100);
  WireField field;
  ASSERT_TRUE(message.next(field));
  EXPECT_EQ(field.number, 1U);
  EXPECT_EQ(field.value, 150U);
  EXPECT_EQ(field.at, 101U);
  ASSERT_TRUE(message.next(field));
  EXPECT_EQ(field.number, 2U);
  EXPECT_EQ(field.bytes, "testing");
  EXPECT_EQ(field.at, 105U);
  EXPECT_FALSE(message.next(field));
  EXPECT_FALSE(message.failed());
}

TEST(WireMessage, BelievesNoLengthAndNoTagThatCannotBe) {
  EXPECT_EQ(numbers("\x12\x08testing"s), "!");  // longer than what is left
  EXPECT_EQ(numbers("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"s), "!");
  EXPECT_EQ(numbers("\x08"s), "!");  // cut
  EXPECT_EQ(numbers("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s), "!");
  EXPECT_EQ(numbers("\x07\x01"s), "!");  // field 0
  EXPECT_EQ(numbers("\x0e\x01"s), "!");  // a kind that there is not
  EXPECT_EQ(numbers("\x0d\x01\x02\x03"s), "!");
  EXPECT_EQ(numbers("\x09\x01\x02\x03\x04\x05\x06\x07"s), "!");
}

TEST(WireMessage, PassesOverGroups) {
  // Group 3 { 1: 5, group 2 { 1: "a" } }, then 4: 1.
  EXPECT_EQ(numbers("\x1b\x08\x05\x13\x0a\x01\x61\x14\x1c\x20\x01"s), "4 ");
  EXPECT_EQ(numbers("\x1b\x1c"s), "");
  EXPECT_EQ(numbers("\x1b\x08\x05"s), "!");      // without an end
  EXPECT_EQ(numbers("\x1b\x24"s), "!");          // the end of another
  EXPECT_EQ(numbers("\x1c"s), "!");              // an end alone
  EXPECT_EQ(numbers("\x1b\x13\x1c\x14"s), "!");  // crossed
  EXPECT_EQ(numbers(std::string(100, '\x1b') + std::string(100, '\x1c')), "");
  EXPECT_EQ(numbers(std::string(101, '\x1b') + std::string(101, '\x1c')), "!");
}

}  // namespace
}  // namespace headroom::text
