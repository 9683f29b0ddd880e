// Runs another program and waits for it, with bounds on its time and on what it may say.
//
// For helpers that are programs of their own (the Python tracer). No shell: arguments go over as
// they are. What the program writes to stderr is kept, its last `kSpoken` bytes; stdin is empty,
// stdout goes nowhere. When its time is up it is killed with all that it started, and it does not
// outlive us (child.h). Blocking; thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headroom {

struct ProcessOptions {
  std::vector<std::string>
      arguments{};  // [0] is the program, looked up in PATH where it has no '/'
  std::vector<std::pair<std::string, std::string>> environment{};  // added to ours
  std::chrono::seconds timeout{300};
  // Called with each line of stderr as it comes, without its end; for progress. Where it says false
  // the program is killed with all that it started, as if it had ended so by itself.
  std::function<bool(std::string_view)> on_line{};
};

struct ProcessResult {
  int exit_code = 0;   // 128 + the signal where one ended it
  std::string spoken;  // the end of what it wrote to stderr
};

// Errors: unavailable, where the program cannot be started or its time is up.
Result<ProcessResult> run_process(const ProcessOptions& options);

// A file for a helper to write to, or to read from. It has no name in any folder, only a path under
// /proc for as long as this object lives: nothing is left behind, however the process ends.
class TemporaryFile {
 public:
  static Result<TemporaryFile> make();
  TemporaryFile(TemporaryFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile();
  // Appends.
  Result<void> write(std::string_view content) const;
  // To be opened by name, by us and by our children.
  [[nodiscard]] std::string path() const;

 private:
  explicit TemporaryFile(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace headroom
