#include "base/heap.h"

#include <cstdlib>  // any header of the C library says which one it is: __GLIBC__

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace headroom {

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kMegabyte = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMegabyte);  // the largest that glibc accepts
  mallopt(M_TRIM_THRESHOLD, 256 * kMegabyte);
#endif
}

}  // namespace headroom
