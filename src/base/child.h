// A child process that does not outlive us, in a process group of its own.
//
// The terminal's Ctrl-C does not reach another group, and a SIGTERM is sent to us alone: who ends
// the process on a signal calls kill_children(), which takes along what the children started. Where
// we die without a word (SIGKILL, a crash), the kernel ends the child itself.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace headroom {

class Child {
 public:
  // Its stdin is empty, its stdout goes nowhere, its stderr to `speech`. Gives back 0, or the errno
  // of why the program cannot be started. REQUIRES: arguments[0], not started before; the calling
  // thread lives as long as the child.
  int start(std::vector<std::string> arguments, std::vector<std::string> environment, int speech);
  // Whether it has ended, and with which status of waitpid(); to be asked until it is true.
  bool has_ended(int& status);
  // It and all that it started; waits for it, and says with which status it ended.
  void kill(int& status);

  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

 private:
  bool wait(int options, int& status);

  pid_t pid_ = 0;    // 0: none, or over
  size_t slot_ = 0;  // among those that kill_children() sees
};

// The groups of all children of all threads. May be called in a signal handler.
void kill_children() noexcept;

}  // namespace headroom
