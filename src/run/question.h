// What `headroom run` is asked: which command, and what Headroom shall do in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::run {

enum class Mode {
  plan,    // record, plan, serve; start with a kept plan where there is one
  record,  // record only
  serve,   // from this plan only
  off,     // PyTorch's own allocator, reported in the same words
};

// As the environment of the child has it.
[[nodiscard]] std::string_view name_of(Mode mode);

struct RunQuestion {
  std::vector<std::string> command;
  Mode mode = Mode::plan;
  std::string record_folder;          // Mode::record
  std::string plan_file;              // Mode::serve
  std::string measure_file;           // CSV to add rows to; "": none
  std::vector<std::string> accepted;  // needs of the script that are known and accepted
  bool without_shim = false;          // PyTorch's C interface even where a shim was built
};

}  // namespace headroom::run
