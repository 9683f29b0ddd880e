// The throw itself, once for each std::string (see torch_error.h).
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "runtime/torch_error.h"

namespace headroom::runtime {
namespace {

// As c10/util/Exception.h has it: 24 bytes, passed by value in memory.
struct SourceLocation {
  const char* function;
  const char* file;
  uint32_t line;
};

// More than c10::Error takes in any version (a test compares it with the one that is installed).
constexpr size_t kRoom = 1024;

[[noreturn]] void throw_torch_error(const TorchError& error, const char* message) {
  using Allocate = void* (*)(size_t);
  // A string by value goes over by address, as the C++ ABI has it for types with a destructor.
  using Construct = void (*)(void*, SourceLocation, std::string*);
  using Destroy = void (*)(void*);
  using Throw = void (*)(void*, void*, Destroy);
  void* const self = reinterpret_cast<Allocate>(error.allocate)(kRoom);
  // Never destroyed here: what the constructor leaves in it belongs to another libstdc++ than ours,
  // whose older strings share one empty one that ours would take for its own to free. (And so there
  // is nothing for the unwinder to clean up.) A constructor that moves leaves nothing to leak.
  alignas(std::string) unsigned char room[sizeof(std::string)];
  auto* const words = new (room) std::string(message);
  reinterpret_cast<Construct>(error.construct)(self, {"headroom_malloc", "libheadroom_torch", 0},
                                               words);
  // A vtable begins behind the offset to the top and the type.
  if (error.vtable != nullptr) *static_cast<void**>(self) = static_cast<void**>(error.vtable) + 2;
  reinterpret_cast<Throw>(error.throw_it)(self, error.type,
                                          reinterpret_cast<Destroy>(error.destroy));
  __builtin_unreachable();
}

}  // namespace
}  // namespace headroom::runtime
