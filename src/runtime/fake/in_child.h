// For tests of what is for ever in a process (the runtime, an exchange of PyTorch's allocator): a
// process of its own, and a check that ends it. Needs no framework, as tests/shim is compiled
// without one.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "runtime/fake/fake_cuda.h"

#define IN_CHILD(condition)                                                \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::_Exit(1);                                                       \
    }                                                                      \
  } while (false)

namespace headroom::runtime::fake {

// Runs `what` in a process of its own: 0 where it held and broke no rule of the driver.
inline int status_of_child(const std::function<void()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    what();
    IN_CHILD(headroom_fake_violations() == 0);
    std::_Exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace headroom::runtime::fake
