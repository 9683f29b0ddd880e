// How the waiting goes: every signal that we hand on, and SIGCHLD, is blocked and taken out one by
// one with sigwaitinfo, so nothing runs inside a signal handler and none is lost between a look at
// the child and the wait. The child starts with the mask that we were called with.
#include "base/foreground.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/environment.h"

namespace headroom {
namespace {

constexpr std::array kHandedOn{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

// Blocks what we wait for, and puts the mask back.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&waited_);
    for (const int signal : kHandedOn) sigaddset(&waited_, signal);
    sigaddset(&waited_, SIGCHLD);
    // Where SIGCHLD is ignored (as some parents leave it) the child's exit code would be lost.
    struct sigaction told {};
    told.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &told, &child_before_);
    sigprocmask(SIG_BLOCK, &waited_, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() {
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    sigaction(SIGCHLD, &child_before_, nullptr);
  }

  [[nodiscard]] const sigset_t& waited() const { return waited_; }
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t waited_{};
  sigset_t before_{};
  struct sigaction child_before_ {};
};

int start(const ForegroundCommand& command, const sigset_t& mask, pid_t& child) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> environment = environment_with(command.environment);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A handler of ours means nothing in the child; what we ignore (nohup) it ignores too.
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : kHandedOn) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&defaults, signal);
  }
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int failure = posix_spawnp(&child, arguments[0].c_str(), nullptr, &attributes,
                                   pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  return failure;
}

// How the child ended, or nothing while it runs (a stopped child runs on).
std::optional<int> ended_status(pid_t child) {
  int status = 0;
  pid_t found = 0;
  do {
    found = waitpid(child, &status, WNOHANG);
  } while (found < 0 && errno == EINTR);
  if (found == 0) return std::nullopt;
  return found == child ? status : 0;
}

// The terminal sent it to our whole group, and so to the child.
bool came_to_both(const siginfo_t& signal) { return signal.si_code == SI_KERNEL; }

int wait_and_hand_on(pid_t child, const sigset_t& waited) {
  while (true) {
    if (const std::optional<int> status = ended_status(child)) return *status;
    siginfo_t signal{};
    const int number = sigwaitinfo(&waited, &signal);
    if (number <= 0 || number == SIGCHLD || came_to_both(signal)) continue;
    kill(child, number);
  }
}

}  // namespace

ForegroundResult run_in_foreground(const ForegroundCommand& command) {
  HEADROOM_CHECK(!command.arguments.empty(), "a command without a program");
  ForegroundResult result;
  const BlockedSignals blocked;
  pid_t child = 0;
  const int failure = start(command, blocked.before(), child);
  if (failure != 0) {
    result.exit_code = failure == ENOENT ? kExitNoCommand : kExitCannotRun;
    result.reason = std::strerror(failure);
    return result;
  }
  result.started = true;
  const int status = wait_and_hand_on(child, blocked.waited());
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  result.exit_code = result.signal != 0 ? 128 + result.signal : WEXITSTATUS(status);
  return result;
}

}  // namespace headroom
