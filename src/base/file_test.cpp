#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace headroom {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "headroom_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (directory_ / name).string();
  }
  std::filesystem::path directory_;
};

TEST_F(FileTest, WritesAndReadsBack) {
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(write_file_atomic(path("x"), content));
  const Result<std::string> read = read_file(path("x"), Bytes(100));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, content);
}

TEST_F(FileTest, LimitIsExact) {
  const std::string content(200'000, 'z');
  ASSERT_TRUE(write_file_atomic(path("x"), content));
  EXPECT_TRUE(read_file(path("x"), Bytes(200'000)));
  const Result<std::string> read = read_file(path("x"), Bytes(199'999));
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("limit"), std::string::npos);
  EXPECT_EQ(read.error().where, path("x"));
}

TEST_F(FileTest, EndlessInputStopsAtTheLimit) {
  EXPECT_FALSE(read_file("/dev/zero", Bytes(1'000'000)));
  EXPECT_FALSE(read_file("/dev/zero", Bytes(0)));
  EXPECT_FALSE(read_file("/dev/zero", Bytes(-5)));
}

TEST_F(FileTest, ReadFailuresNameTheFile) {
  for (const std::string& bad :
       {path("absent"), directory_.string(), std::string("a\0b", 3), std::string()}) {
    const Result<std::string> read = read_file(bad, Bytes(10));
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().code, ErrorCode::bad_input);
  }
}

TEST_F(FileTest, ReplacesKeepsModeAndLeavesNoTemporary) {
  ASSERT_TRUE(write_file_atomic(path("x"), "old"));
  ASSERT_EQ(::chmod(path("x").c_str(), 0600), 0);
  ASSERT_TRUE(write_file_atomic(path("x"), "new"));
  EXPECT_EQ(*read_file(path("x"), Bytes(10)), "new");
  struct stat status {};
  ASSERT_EQ(::stat(path("x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(FileTest, FollowsLinksAndWritesDevicesInPlace) {
  ASSERT_TRUE(write_file_atomic(path("x"), "old"));
  ASSERT_EQ(::symlink(path("x").c_str(), path("link").c_str()), 0);
  ASSERT_TRUE(write_file_atomic(path("link"), "new"));
  EXPECT_EQ(*read_file(path("x"), Bytes(10)), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_TRUE(write_file_atomic("/dev/null", "gone"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(FileTest, WhetherItCanBeWrittenIsKnownBefore) {
  EXPECT_TRUE(check_writable(path("new")));
  EXPECT_TRUE(check_writable("/dev/null"));
  EXPECT_FALSE(check_writable(path("no/such/directory")));
  EXPECT_FALSE(check_writable(directory_.string()));
  EXPECT_FALSE(check_writable(""));
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(FileTest, WriteFailures) {
  EXPECT_FALSE(write_file_atomic(path("no/such/directory"), "x"));
  EXPECT_FALSE(write_file_atomic(directory_.string(), "x"));
  EXPECT_FALSE(write_file_atomic("", "x"));
}

}  // namespace
}  // namespace headroom
