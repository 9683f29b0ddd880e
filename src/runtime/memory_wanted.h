// Who else in the process has cached device memory, and would give it back before a request of ours
// is refused: PyTorch's own allocator, where the shim stands between it and us (abi.h,
// headroom_on_memory_wanted). One for the process; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/abi.h"

namespace headroom::runtime {

class MemoryWanted {
 public:
  static void set(headroom_memory_wanted_handler handler, void* context) {
    context_ = context;
    handler_ = handler;
  }
  // Whether something was given back. REQUIRES: no lock is held.
  static bool ask(int64_t bytes, int device) {
    const headroom_memory_wanted_handler handler = handler_.load();
    return handler != nullptr && handler(bytes, device, context_.load()) != 0;
  }

 private:
  static inline std::atomic<headroom_memory_wanted_handler> handler_ = nullptr;
  static inline std::atomic<void*> context_ = nullptr;
};

}  // namespace headroom::runtime
