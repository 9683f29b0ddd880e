#include "text/gzip.h"

#include <gtest/gtest.h>

#include <random>

namespace headroom::text {
namespace {

std::string noise(size_t size) {
  std::mt19937 random(3);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random() % 64);
  return text;
}

TEST(Gzip, RoundTrip) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{300'000}, size_t{3'000'000}}) {
    const std::string text = noise(size);
    const Result<std::string> back = gunzip(gzip(text), "f", Bytes(4'000'000));
    ASSERT_TRUE(back) << back.error().to_string();
    EXPECT_EQ(*back, text);
  }
}

TEST(Gzip, MembersAreJoinedAndPaddingIgnored) {
  EXPECT_EQ(*gunzip(gzip("ab") + gzip("cd") + std::string(512, '\0'), "f", Bytes(10)), "abcd");
}

TEST(Gzip, LimitIsExactAndStopsBombs) {
  const std::string packed = gzip(std::string(50'000'000, 'a'));
  EXPECT_LT(packed.size(), 100'000U);
  EXPECT_TRUE(gunzip(packed, "f", Bytes(50'000'000)));
  const Result<std::string> stopped = gunzip(packed, "f", Bytes(49'999'999));
  ASSERT_FALSE(stopped);
  EXPECT_NE(stopped.error().message.find("limit"), std::string::npos);
}

TEST(Gzip, TruncatedOrCorruptIsAnError) {
  const std::string packed = gzip(noise(100'000));
  for (const size_t size :
       {size_t{2}, size_t{5}, size_t{11}, packed.size() / 2, packed.size() - 1}) {
    EXPECT_FALSE(gunzip(packed.substr(0, size), "f", Bytes(kMiB))) << size;
  }
  for (const size_t at : {size_t{2}, packed.size() / 2, packed.size() - 6, packed.size() - 1}) {
    std::string bad = packed;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    EXPECT_FALSE(gunzip(bad, "f", Bytes(kMiB))) << at;
  }
}

}  // namespace
}  // namespace headroom::text
