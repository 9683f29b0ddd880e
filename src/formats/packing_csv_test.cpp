#include "formats/packing_csv.h"

#include <gtest/gtest.h>

namespace headroom::formats {
namespace {

std::string error_of(std::string_view text) {
  const auto instance = parse_packing_csv(text, "x.csv");
  return instance ? std::string() : instance.error().to_string();
}

TEST(PackingCsv, ReadsWhatItWrites) {
  const auto instance =
      parse_packing_csv("size,id,note,upper,lower\n64,a b,x,5,-2\n0,,y,7,7\n", "x");
  ASSERT_TRUE(instance) << instance.error().to_string();
  EXPECT_EQ(instance->problem.requests,
            (std::vector<memory::PackingRequest>{{-2, 5, 64}, {7, 7, 0}}));
  const std::string written = placements_csv(*instance, {{128, 0}, 192});
  EXPECT_EQ(written, "id,lower,upper,size,offset\na b,-2,5,64,128\n,7,7,0,0\n");
  const auto again = parse_packing_csv(written, "again");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->problem, instance->problem);
  EXPECT_EQ(again->ids, instance->ids);
}

TEST(PackingCsv, ErrorsNameTheLine) {
  EXPECT_NE(error_of("").find("x.csv"), std::string::npos);
  EXPECT_NE(error_of("id,lower,upper\n").find("size"), std::string::npos);
  EXPECT_NE(error_of("id,lower,upper,size\n1,2,3,4\n2,3,1,4\n").find("x.csv:3"), std::string::npos);
  EXPECT_NE(error_of("id,lower,upper,size\n1,2,3,-4\n").find("x.csv:2"), std::string::npos);
  EXPECT_NE(error_of("id,lower,upper,size\n1,2,3\n").find("x.csv:2"), std::string::npos);
  EXPECT_NE(error_of("id,lower,upper,size\n1,2,3,1152921504606846976\n2,2,3,1\n").find("x.csv:3"),
            std::string::npos);
  EXPECT_NE(error_of("id,lower,upper,size\n1,2,99999999999999999999,4\n"), "");
}

// Nothing marks the end of a table, so a cut between two lines is a smaller table; within a line it
// is an error or is marked.
TEST(PackingCsv, CutAtEveryByte) {
  for (const std::string text : {"id,lower,upper,size\n1,2,30,400\n\"a,b\",-5,6,70\n",
                                 "size,id,upper,lower\r\n64,a b,5,-2\r\n10,,7,7\r\n"}) {
    ASSERT_FALSE(parse_packing_csv(text, "x.csv")->is_open_ended);
    for (size_t length = 0; length < text.size(); ++length) {
      const std::string_view part = std::string_view(text).substr(0, length);
      const auto read = parse_packing_csv(part, "x.csv");
      if (!read) {
        EXPECT_EQ(read.error().where.substr(0, 5), "x.csv") << part;
        EXPECT_FALSE(read.error().message.empty()) << part;
        continue;
      }
      EXPECT_EQ(read->is_open_ended, part.back() != '\n') << part;
      EXPECT_LE(read->ids.size(), 2U);
    }
  }
}

TEST(PackingCsv, AHeaderAloneIsAnInstance) {
  const auto instance = parse_packing_csv("id,lower,upper,size\n", "x");
  ASSERT_TRUE(instance);
  EXPECT_TRUE(instance->problem.requests.empty());
}

}  // namespace
}  // namespace headroom::formats
