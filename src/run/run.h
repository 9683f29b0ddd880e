// `headroom run`: a command with our allocator inside its PyTorch, and what it did there.
//
// The child gets an environment by which every Python process among its descendants finds the glue
// (python/headroom/run), which does the rest; this side starts it, waits, and reads what the
// processes left. Blocking; one at a time in a process, as signals are handed on meanwhile.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/foreground.h"
#include "base/result.h"
#include "run/answer.h"
#include "run/question.h"

namespace headroom::run {

// Where our other parts lie.
struct Parts {
  std::string package;  // the folder that holds the Python package `headroom`
  std::string library;  // libheadroom_torch.so; "" where there is none
};

[[nodiscard]] Result<Parts> find_parts();

// What the child gets beside our own environment. `reports` is a folder that is there.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> environment_for(
    const RunQuestion& question, const Parts& parts, const std::string& reports);

// Whether `--plan` names a plan that can be served. What is none costs the run nothing but the
// plan: it goes on without it. Files of ranks and devices (%r, %d) and what is no file are not
// looked at.
[[nodiscard]] Result<void> check_plan(const RunQuestion& question);

// Runs the command to its end. An Error is a failure of ours, before it was started.
[[nodiscard]] Result<RunAnswer> answer(const RunQuestion& question);

// Compiles the shim (python/headroom/run/shim) for the PyTorch of this Python, whose words go to
// our stdout and stderr.
[[nodiscard]] Result<ForegroundResult> build_shim(const std::string& python, bool as_json);

}  // namespace headroom::run
