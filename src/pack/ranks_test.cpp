#include "pack/ranks.h"

#include <gtest/gtest.h>

#include "tests/tools/room_test.h"

namespace headroom::pack {
namespace {

std::string data(const char* name) { return tests::source_dir() + "/tests/data/" + name; }

TEST(Ranks, TheWorstFirstAndWhatCannotBeReadLast) {
  const auto answer = answer_ranks(
      {}, {"/nonexistent", data("snapshot_torch20.pickle"), data("snapshot_whole.pickle")});
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->ranks.size(), 3U);
  EXPECT_EQ(answer->failed(), 1U);
  EXPECT_TRUE(answer->ranks[2].error);
  EXPECT_GE(answer->ranks[0].lost, answer->ranks[1].lost);
  ASSERT_TRUE(answer->worst);
  EXPECT_EQ(answer->worst->file, answer->ranks[0].file);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_GT(answer->ranks[i].reserved, Bytes(0));
    EXPECT_LE(answer->ranks[i].lost, answer->ranks[i].reserved);
  }
}

TEST(Ranks, NothingToReadIsAnError) { EXPECT_FALSE(answer_ranks({}, {"/nonexistent", "/either"})); }

}  // namespace
}  // namespace headroom::pack
