// CallSites: the call stacks of a recording, each kept once.
//
// A recording names a stack for nearly every event, and a training step has some hundred different
// ones. Frames and texts are shared between stacks in turn. Plain data that readers of recordings
// fill; not thread-safe while they do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/interner.h"

namespace headroom::memory {

struct CallFrame {
  uint32_t function = 0;  // into CallSites::texts
  uint32_t file = 0;
  int64_t line = 0;
  bool operator==(const CallFrame&) const = default;
};

class CallSites {
 public:
  // Text 0 is the empty one, and stack 0 the one without frames.
  CallSites();

  uint32_t add_text(std::string_view text) { return texts_.intern(text); }
  uint32_t add_frame(const CallFrame& frame);
  // Frames by their numbers, innermost first. REQUIRES: add_frame() returned them.
  uint32_t add_stack(std::span<const uint32_t> frames);

  // REQUIRES: the number is one that was returned.
  [[nodiscard]] std::string_view text(uint32_t number) const { return texts_[number]; }
  [[nodiscard]] CallFrame frame(uint32_t number) const { return frames_[number]; }
  [[nodiscard]] std::span<const uint32_t> stack(uint32_t number) const;
  [[nodiscard]] size_t text_count() const { return texts_.size(); }
  [[nodiscard]] size_t frame_count() const { return frames_.size(); }
  [[nodiscard]] size_t stack_count() const { return stacks_.size(); }

 private:
  Interner texts_;
  Interner frame_numbers_;  // by the frame's bytes; the same order as frames_
  std::vector<CallFrame> frames_;
  Interner stacks_;  // arrays of frame numbers, as bytes
};

}  // namespace headroom::memory
