// What ends with a child's parent: each test is its own parent, a fork that runs a shell.
#include "base/child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/environment.h"
#include "base/file.h"
#include "base/process.h"

namespace headroom {
namespace {

using namespace std::chrono_literals;

bool within(std::chrono::seconds time, const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

extern "C" void end_with_children(int) {
  kill_children();
  _exit(77);
}

// A parent in a process of its own, whose child, a shell, and that one's child write their numbers
// into `file` and then sleep.
pid_t parent_of_sleepers(const std::string& file) {
  const pid_t parent = fork();
  if (parent != 0) return parent;
  signal(SIGTERM, end_with_children);
  (void)run_process(
      {.arguments = {"/bin/sh", "-c", "sleep 600 & echo $$ $! > \"$1\"; wait", "sh", file}});
  _exit(0);
}

// A process that is gone, or that nobody has waited for yet.
bool is_over(pid_t process) {
  const auto stat = read_file("/proc/" + std::to_string(process) + "/stat", Bytes(4096));
  return !stat || stat->find(") Z ") != std::string::npos;
}

struct Sleepers {
  pid_t child = 0;
  pid_t grandchild = 0;
};

Sleepers read_sleepers(const std::string& file) {
  Sleepers found;
  within(20s, [&] {
    const auto words = read_file(file, Bytes(100));
    return words && words->ends_with("\n") &&
           sscanf(words->c_str(), "%d %d", &found.child, &found.grandchild) == 2;
  });
  return found;
}

class ChildOfTheDead : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(file_.has_value());
    parent_ = parent_of_sleepers(file_->path());
    ASSERT_GT(parent_, 0);
    sleepers_ = read_sleepers(file_->path());
    ASSERT_GT(sleepers_.grandchild, 0);
    ASSERT_FALSE(is_over(sleepers_.child));
  }
  void TearDown() override {
    for (const pid_t left : {sleepers_.child, sleepers_.grandchild}) {
      if (left > 0 && !is_over(left)) kill(left, SIGKILL);
    }
  }
  int end_parent(int signal) const {
    kill(parent_, signal);
    int status = 0;
    waitpid(parent_, &status, 0);
    return status;
  }
  Result<TemporaryFile> file_ = TemporaryFile::make();
  pid_t parent_ = 0;
  Sleepers sleepers_;
};

TEST_F(ChildOfTheDead, GoesWithItAndAllThatItStartedOnASignal) {
  const int status = end_parent(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 77);
  EXPECT_TRUE(within(10s, [&] { return is_over(sleepers_.child); }));
  EXPECT_TRUE(within(10s, [&] { return is_over(sleepers_.grandchild); }));
}

TEST_F(ChildOfTheDead, GoesWithItWhereItDiesWithoutAWord) {
  end_parent(SIGKILL);
  EXPECT_TRUE(within(10s, [&] { return is_over(sleepers_.child); }));
}

TEST(Child, ThatIsLeftIsKilled) {
  pid_t group = 0;
  {
    const auto file = TemporaryFile::make();
    ASSERT_TRUE(file.has_value());
    Child child;
    ASSERT_EQ(
        child.start({"/bin/sh", "-c", "echo $$ 0 > \"$1\"; exec sleep 600", "sh", file->path()},
                    environment_with({}), STDERR_FILENO),
        0);
    group = read_sleepers(file->path()).child;
    ASSERT_GT(group, 0);
  }
  EXPECT_NE(kill(-group, 0), 0) << "somebody is left of it";
}

}  // namespace
}  // namespace headroom
