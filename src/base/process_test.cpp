#include "base/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"

namespace headroom {
namespace {

Result<ProcessResult> shell(const char* script, int seconds = 20) {
  return run_process({.arguments = {"/bin/sh", "-c", script},
                      .environment = {{"HEADROOM_WORD", "as it is; $(no)"}},
                      .timeout = std::chrono::seconds(seconds)});
}

TEST(Process, GivesExitCodeAndStderr) {
  const auto result = shell("echo unseen; echo \"$HEADROOM_WORD\" >&2; exit 7");
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->spoken, "as it is; $(no)\n");
}

TEST(Process, NamesTheSignalThatEndedIt) {
  const auto result = shell("kill -9 $$");
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->exit_code, 137);
}

TEST(Process, KeepsTheEndOfALongSpeech) {
  const auto result = shell(
      "i=0; while [ $i -lt 9000 ]; do echo word >&2; i=$((i+1)); done; "
      "echo last >&2");
  ASSERT_TRUE(result.has_value());
  EXPECT_LE(result->spoken.size(), 16'384U);
  EXPECT_TRUE(result->spoken.ends_with("last\n"));
}

TEST(Process, StopsWhatTakesTooLong) {
  const auto result = shell("sleep 30", 1);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::unavailable);
  const auto silent = shell("exec 2>/dev/null; sleep 30", 1);
  EXPECT_FALSE(silent.has_value());
}

TEST(Process, EndsWhatNobodyWantsToHearMoreOf) {
  std::string heard;
  const auto result =
      run_process({.arguments = {"/bin/sh", "-c", "echo a >&2; echo b >&2; sleep 30"},
                   .timeout = std::chrono::seconds(20),
                   .on_line = [&](std::string_view line) {
                     heard += line;
                     return line != "a";
                   }});
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  EXPECT_EQ(heard, "a");
  EXPECT_EQ(result->exit_code, 137);
}

TEST(Process, NamesAProgramThatIsNotThere) {
  const auto result = run_process({.arguments = {"/nowhere/program"}});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().where, "/nowhere/program");
}

TEST(TemporaryFile, TakesWhatAChildWritesAndLeavesNothing) {
  std::string folder = testing::TempDir() + "headroom-process-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(setenv("TMPDIR", folder.c_str(), 1), 0);
  const auto file = TemporaryFile::make();
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "the folder is not empty";
  const auto done =
      run_process({.arguments = {"/bin/sh", "-c", "echo written > \"$1\"", "sh", file->path()}});
  ASSERT_TRUE(done.has_value());
  const auto text = read_file(file->path(), Bytes(100));
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, "written\n");
  unsetenv("TMPDIR");
}

TEST(TemporaryFile, GivesAChildWhatItHolds) {
  const auto file = TemporaryFile::make();
  ASSERT_TRUE(file.has_value());
  ASSERT_TRUE(file->write("said\n"));
  const auto done =
      run_process({.arguments = {"/bin/sh", "-c", "cat \"$1\" >&2", "sh", file->path()}});
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->spoken, "said\n");
}

}  // namespace
}  // namespace headroom
