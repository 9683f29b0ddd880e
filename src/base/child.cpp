// fork and exec rather than posix_spawn: only the child itself can ask the kernel to end it with
// us (PR_SET_PDEATHSIG). Between the two it calls nothing that is not safe after a fork of one of
// several threads.
#include "base/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "base/environment.h"

namespace headroom {
namespace {

// One a thread that waits; more are left to the kernel alone.
constexpr size_t kMostChildren = 64;
std::array<std::atomic<pid_t>, kMostChildren> running_groups;
static_assert(std::atomic<pid_t>::is_always_lock_free, "a signal handler reads them");

// The slot of a group, or kMostChildren.
size_t add_group(pid_t group) {
  for (size_t slot = 0; slot < kMostChildren; ++slot) {
    pid_t none = 0;
    if (running_groups[slot].compare_exchange_strong(none, group)) return slot;
  }
  return kMostChildren;
}

void remove_group(size_t slot) {
  if (slot < kMostChildren) running_groups[slot] = 0;
}

// A handler of ours means nothing in the child; what we ignore (nohup) it ignores too.
void forget_handlers() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
  }
}

struct Birth {
  char* const* arguments;
  char* const* environment;
  int speech;
  int report;  // takes the errno; closed by exec
  pid_t parent;
  const sigset_t* mask;
};

[[noreturn]] void become(const Birth& birth) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != birth.parent) _exit(127);  // it died before that
  const int nothing_in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int nothing_out = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nothing_in, 0);
  dup2(nothing_out, 1);
  dup2(birth.speech, 2);
  forget_handlers();
  pthread_sigmask(SIG_SETMASK, birth.mask, nullptr);
  execvpe(birth.arguments[0], birth.arguments, birth.environment);
  const int failure = errno;
  [[maybe_unused]] const ssize_t told = write(birth.report, &failure, sizeof failure);
  _exit(127);
}

// What the child says before it becomes the program: nothing, or its errno.
int read_report(int report) {
  int failure = 0;
  ssize_t count = 0;
  do {
    count = read(report, &failure, sizeof failure);
  } while (count < 0 && errno == EINTR);
  return count == sizeof failure ? failure : 0;
}

}  // namespace

int Child::start(std::vector<std::string> arguments, std::vector<std::string> environment,
                 int speech) {
  const std::vector<char*> words = pointers_to(arguments);
  const std::vector<char*> variables = pointers_to(environment);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return errno;
  // No handler runs here while the child is not known yet, and none of ours in the child.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const Birth birth{words.data(), variables.data(), speech, report[1], getpid(), &before};
  const pid_t child = fork();
  if (child == 0) become(birth);
  int failure = child < 0 ? errno : 0;
  if (child > 0) {
    pid_ = child;
    setpgid(child, child);  // here too, so that the group is there before anyone kills it
    slot_ = add_group(child);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(report[1]);
  if (child > 0) failure = read_report(report[0]);
  close(report[0]);
  if (failure != 0) {
    int status = 0;
    kill(status);
  }
  return failure;
}

// Its number is not given to anyone else before it is no longer among those to be killed.
bool Child::wait(int options, int& status) {
  siginfo_t ended{};
  int found = 0;
  do {
    ended.si_pid = 0;
    found = waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT | options);
  } while (found < 0 && errno == EINTR);
  if (found == 0 && ended.si_pid == 0) return false;
  remove_group(slot_);
  status = 0;  // where SIGCHLD is ignored nobody knows it
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return true;
}

bool Child::has_ended(int& status) { return pid_ == 0 || wait(WNOHANG, status); }

void Child::kill(int& status) {
  if (pid_ == 0) return;
  ::kill(-pid_, SIGKILL);
  wait(0, status);
}

Child::~Child() {
  int status = 0;
  kill(status);
}

void kill_children() noexcept {
  for (const std::atomic<pid_t>& group : running_groups) {
    if (const pid_t running = group; running > 0) ::kill(-running, SIGKILL);
  }
}

}  // namespace headroom
