// Our Python package as a program: helpers that need PyTorch are modules of it, run as processes.
//
// Python is $HEADROOM_PYTHON, else .venv/bin/python of the current folder or of our checkout, else
// python3. Whoever runs one should say, where it fails, that HEADROOM_PYTHON names another. A few
// stat() calls; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/process.h"
#include "base/result.h"

namespace headroom {

// `python -m headroom.MODULE ARGUMENTS...`, not yet started. An Error where our package is not
// beside our program.
Result<ProcessOptions> python_module(std::string_view module, std::vector<std::string> arguments);

// What the module itself said when it failed: of `spoken`, what stands behind the last line that
// begins with "headroom: ", or the end where there is none (Python itself failed). Ten lines at
// most.
[[nodiscard]] std::vector<std::string_view> last_words(std::string_view spoken);

}  // namespace headroom
