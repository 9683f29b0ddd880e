#include "memory/call_sites.h"

#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace headroom::memory {

static_assert(std::has_unique_object_representations_v<CallFrame>,
              "frames are told apart by bytes");

CallSites::CallSites() {
  texts_.intern("");
  stacks_.intern("");
}

uint32_t CallSites::add_frame(const CallFrame& frame) {
  HEADROOM_CHECK(frame.function < texts_.size() && frame.file < texts_.size(),
                 "a frame with a name that is not there");
  const uint32_t number =
      frame_numbers_.intern({reinterpret_cast<const char*>(&frame), sizeof(frame)});
  if (number == frames_.size()) frames_.push_back(frame);
  return number;
}

uint32_t CallSites::add_stack(std::span<const uint32_t> frames) {
  for (const uint32_t frame : frames) {
    HEADROOM_CHECK(frame < frames_.size(), "a stack with a frame that is not there");
  }
  return stacks_.intern({reinterpret_cast<const char*>(frames.data()), frames.size_bytes()});
}

std::span<const uint32_t> CallSites::stack(uint32_t number) const {
  // The interner holds nothing but arrays of uint32_t, one behind the other in blocks of `new`, so
  // each begins where a uint32_t may begin.
  const std::string_view bytes = stacks_[number];
  return {reinterpret_cast<const uint32_t*>(bytes.data()), bytes.size() / sizeof(uint32_t)};
}

}  // namespace headroom::memory
