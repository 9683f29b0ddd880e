#include "base/foreground.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace headroom {
namespace {

ForegroundResult shell(const std::string& script,
                       std::vector<std::pair<std::string, std::string>> environment = {}) {
  return run_in_foreground({{"sh", "-c", script}, std::move(environment)});
}

TEST(Foreground, TheChildsExitCodeIsOurs) {
  const ForegroundResult result = shell("exit 37");
  EXPECT_TRUE(result.started);
  EXPECT_EQ(result.exit_code, 37);
  EXPECT_EQ(result.signal, 0);
}

TEST(Foreground, ASignalThatEndsTheChildIsTold) {
  const ForegroundResult result = shell("kill -KILL $$");
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_EQ(result.signal, SIGKILL);
}

TEST(Foreground, TheEnvironmentIsAddedToOurs) {
  setenv("HEADROOM_TEST_KEPT", "kept", 1);
  setenv("HEADROOM_TEST_REPLACED", "before", 1);
  const ForegroundResult result = shell(
      "test \"$HEADROOM_TEST_KEPT$HEADROOM_TEST_REPLACED$HEADROOM_TEST_ADDED\" = keptafternew",
      {{"HEADROOM_TEST_REPLACED", "after"}, {"HEADROOM_TEST_ADDED", "new"}});
  EXPECT_EQ(result.exit_code, 0);
}

TEST(Foreground, WhatCannotBeStartedHasAShellsCodes) {
  const ForegroundResult missing = run_in_foreground({{"/nonexistent/program"}, {}});
  EXPECT_FALSE(missing.started);
  EXPECT_EQ(missing.exit_code, kExitNoCommand);
  EXPECT_FALSE(missing.reason.empty());
  const ForegroundResult folder = run_in_foreground({{"/tmp"}, {}});
  EXPECT_FALSE(folder.started);
  EXPECT_EQ(folder.exit_code, kExitCannotRun);
}

// The parent of the shell is this process, so the shell can signal us, once its trap is set.
TEST(Foreground, ASignalSentToUsIsHandedOn) {
  const ForegroundResult result = shell(
      "trap 'exit 42' USR1; kill -USR1 $PPID; i=0; while [ $i -lt 200 ]; do i=$((i+1)); sleep "
      "0.05; done; exit 1");
  EXPECT_EQ(result.exit_code, 42);
}

TEST(Foreground, TheMaskIsAsItWasAndTheChildsIsOurs) {
  sigset_t before;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  // A blocked SIGTERM would leave the shell alive, and it would exit with 3.
  EXPECT_EQ(shell("kill -TERM $$; exit 3").signal, SIGTERM);
  sigset_t after;
  sigprocmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
  EXPECT_EQ(sigismember(&after, SIGCHLD), sigismember(&before, SIGCHLD));
}

TEST(Foreground, TheExitCodeArrivesWhereSigchldIsIgnored) {
  signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(shell("exit 9").exit_code, 9);
  signal(SIGCHLD, SIG_DFL);
}

TEST(Foreground, WhatWeIgnoreTheChildIgnores) {
  signal(SIGHUP, SIG_IGN);
  const ForegroundResult result = shell("kill -HUP $$; exit 5");
  signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(result.exit_code, 5);
}

}  // namespace
}  // namespace headroom
