// Runs a program in our place: on our terminal, with our stdin, stdout and stderr, and our signals.
//
// For `headroom run`, which stands before a command that people already type. The child stays in
// our process group, so the terminal's Ctrl-C and Ctrl-Z reach it by themselves; what another
// process sends to us alone (SIGTERM of a scheduler, SIGUSR1 before a time limit) is handed on.
// A signal that was sent to the whole group by kill(2) therefore arrives twice. Blocking. Not
// thread-safe: it changes the signal mask while it waits, and puts it back.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headroom {

// The codes of a shell for a command that could not be started.
inline constexpr int kExitCannotRun = 126;
inline constexpr int kExitNoCommand = 127;

struct ForegroundCommand {
  std::vector<std::string> arguments;  // [0] is the program, looked up in PATH without a '/'
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
};

struct ForegroundResult {
  bool started = false;
  int exit_code = 0;   // the child's, 128 + its signal, or 126 or 127 where it was not started
  int signal = 0;      // that ended the child; 0: none
  std::string reason;  // why it was not started
};

// REQUIRES: a first argument.
[[nodiscard]] ForegroundResult run_in_foreground(const ForegroundCommand& command);

}  // namespace headroom
