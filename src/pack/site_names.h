// SiteNames: of each recorded call stack, the one frame that a user wants to read.
//
// That is the innermost Python frame outside of PyTorch, the standard library, and libraries that
// only pass calls on (einops, accelerate); where all are inside, the innermost Python frame; where
// there is none (the threads of backward), the autograd function or else the innermost function of
// PyTorch's own. Stacks with the same words are one site. Built once from a snapshot, linear in its
// frames; then read by any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/call_sites.h"

namespace headroom::pack {

struct CallSite {
  std::string function;
  std::string file;  // empty where there is none
  int64_t line = 0;
  // "cs336_basics/optimizer.py:80 step": the last two parts of the path. What a file says, so it
  // still has to be made harmless before it is shown.
  [[nodiscard]] std::string words() const;
};

class SiteNames {
 public:
  SiteNames() = default;
  // Keeps what it needs of the recording's stacks.
  explicit SiteNames(const memory::CallSites& recorded);

  // By the reader's id of a stack. Site 0 is that of a block without a stack.
  [[nodiscard]] uint32_t site_of(uint32_t stack) const {
    return stack < site_of_stack_.size() ? site_of_stack_[stack] : 0;
  }
  [[nodiscard]] size_t size() const { return sites_.size(); }
  // REQUIRES: site < size().
  [[nodiscard]] const CallSite& site(uint32_t index) const { return sites_[index]; }

  // The Python frames of a stack, innermost first, at most `most`.
  [[nodiscard]] std::vector<CallSite> python_frames(uint32_t stack, size_t most) const;

 private:
  [[nodiscard]] CallSite choose(const std::vector<uint32_t>& stack) const;

  std::vector<std::vector<uint32_t>> stacks_;
  std::vector<CallSite> frames_;
  std::vector<uint32_t> site_of_stack_;
  std::vector<CallSite> sites_{CallSite{"(no call stack)", "", 0}};
};

// Whether a file of this name is Python's; and whether a user would not look for anything in it.
[[nodiscard]] bool is_python_file(std::string_view file);
[[nodiscard]] bool is_internal_file(std::string_view file);

}  // namespace headroom::pack
