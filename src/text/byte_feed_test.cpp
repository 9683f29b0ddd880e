#include "text/byte_feed.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "text/gzip.h"

namespace headroom::text {
namespace {

// All that the feed gives, in pieces of `step`, and the Error at its end if there is one.
struct Drained {
  std::string bytes;
  std::optional<Error> error;
};

Drained drain(ByteFeed feed, size_t step) {
  Drained drained;
  std::string piece(step, '\0');
  for (;;) {
    const Result<size_t> count = feed.read(piece.data(), step);
    if (!count) {
      drained.error = count.error();
      return drained;
    }
    if (*count == 0) return drained;
    drained.bytes.append(piece, 0, *count);
  }
}

std::string sample() {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += std::to_string(i * 7919 % 100'003) + "\n";
  return bytes;
}

TEST(ByteFeed, PlainAndPackedGiveTheSameBytes) {
  const std::string bytes = sample();
  for (const size_t step : {size_t{1000}, size_t{1} << 20}) {
    EXPECT_EQ(drain(ByteFeed(bytes, "plain"), step).bytes, bytes);
    EXPECT_EQ(drain(ByteFeed(gzip(bytes), "packed"), step).error, std::nullopt);
  }
  const std::string packed = gzip(bytes);
  EXPECT_EQ(drain(ByteFeed(packed, "packed"), 777).bytes, bytes);
}

TEST(ByteFeed, WhatIsLookedAtIsReadAgain) {
  const std::string bytes = sample();
  const std::string packed = gzip(bytes);
  for (const std::string_view source : {std::string_view(bytes), std::string_view(packed)}) {
    ByteFeed feed(source, "peeked");
    EXPECT_EQ(*feed.peek(1000), bytes.substr(0, 1000));
    EXPECT_EQ(*feed.peek(10), bytes.substr(0, 10));
    char begin[4];
    ASSERT_EQ(*feed.read(begin, 4), 4U);
    EXPECT_EQ(*feed.peek(2000), bytes.substr(4, 2000));
    EXPECT_EQ(drain(std::move(feed), 300).bytes, bytes.substr(4));
  }
  EXPECT_EQ(*ByteFeed("short", "short").peek(100), "short");
  EXPECT_EQ(*ByteFeed("", "empty").peek(100), "");
}

TEST(ByteFeed, AFaultBehindWhatIsLookedAtIsFound) {
  const std::string packed = gzip(sample());
  ByteFeed feed(std::string_view(packed).substr(0, packed.size() / 2), "cut");
  ASSERT_TRUE(feed.peek(100));
  EXPECT_TRUE(drain(std::move(feed), 1000).error);
  ByteFeed none(std::string_view(packed).substr(0, 5), "cut");
  EXPECT_FALSE(none.peek(100));
}

TEST(ByteFeed, SeveralMembersFollowOneAnother) {
  const std::string packed = gzip("one ") + gzip("two") + std::string(16, '\0');
  const Drained drained = drain(ByteFeed(packed, "packed"), 3);
  EXPECT_EQ(drained.bytes, "one two");
  EXPECT_FALSE(drained.error);
}

TEST(ByteFeed, WhatIsBeforeTheCutIsHandedOut) {
  const std::string bytes = sample();
  const std::string packed = gzip(bytes);
  const std::string_view half = std::string_view(packed).substr(0, packed.size() / 2);
  const Drained drained = drain(ByteFeed(half, "half"), 4096);
  ASSERT_TRUE(drained.error);
  EXPECT_NE(drained.error->message.find("truncated"), std::string::npos);
  EXPECT_GT(drained.bytes.size(), bytes.size() / 4);
  EXPECT_EQ(drained.bytes, bytes.substr(0, drained.bytes.size()));
}

TEST(ByteFeed, CorruptDataIsAnError) {
  std::string packed = gzip(sample());
  for (size_t i = packed.size() / 2; i < packed.size() / 2 + 64; ++i) packed[i] ^= '\x55';
  EXPECT_TRUE(drain(ByteFeed(packed, "corrupt"), 4096).error);
}

TEST(ByteFeed, Files) {
  const std::string path = ::testing::TempDir() + "/byte_feed.gz";
  ASSERT_TRUE(write_file_atomic(path, gzip(sample())));
  Result<ByteFeed> feed = ByteFeed::open(path);
  ASSERT_TRUE(feed);
  EXPECT_EQ(drain(std::move(*feed), 5000).bytes, sample());
  EXPECT_FALSE(ByteFeed::open(path + ".not_there"));
  Result<ByteFeed> folder = ByteFeed::open(::testing::TempDir());
  EXPECT_TRUE(!folder || drain(std::move(*folder), 10).error);
}

TEST(ByteFeed, NothingIsNothing) {
  const Drained drained = drain(ByteFeed("", "empty"), 10);
  EXPECT_TRUE(drained.bytes.empty());
  EXPECT_FALSE(drained.error);
}

}  // namespace
}  // namespace headroom::text
