#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace headroom {

void check_failed(const char* file, int line, const char* condition, const char* note) noexcept {
  std::fprintf(stderr,
               "%s:%d: check failed: %s (%s)\nThis is a bug in headroom, please report it.\n", file,
               line, condition, note);
  std::_Exit(70);
}

}  // namespace headroom
