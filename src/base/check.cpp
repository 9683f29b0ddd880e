#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace headroom {

void check_failed(const char* file, int line, const char* condition, const char* note) noexcept {
  std::fprintf(stderr,
               "%s:%d: check failed: %s (%s)\nThis is a bug in headroom, please report it.\n", file,
               line, condition, note);
#ifdef HEADROOM_FUZZ
  std::abort();  // by a signal the fuzzer learns of it, and keeps the input
#else
  std::_Exit(70);
#endif
}

}  // namespace headroom
