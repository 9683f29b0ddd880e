// Independent pieces of work on the cores of this machine.
//
// For work of some milliseconds a piece: threads are made for the call. Which thread does which
// piece is left open, so pieces write to places of their own and their order decides nothing.
#pragma once

#include <cstddef>
#include <functional>

namespace headroom {

// Calls work(i) once for each i < count, on at most `threads` threads (0: as many as there are
// cores) and returns when all are done. REQUIRES: work(i) may run beside work(j), and throws
// nothing.
void for_each_in_parallel(size_t count, size_t threads, const std::function<void(size_t)>& work);

}  // namespace headroom
