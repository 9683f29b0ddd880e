#include "model/tracer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/beside.h"
#include "base/environment.h"
#include "base/process.h"

namespace headroom::model {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kTraceTime{600};
constexpr int kNotHere = 4;                       // EXIT_UNAVAILABLE of trace_module.py
constexpr int kKilled = 128 + 9;                  // as by a machine whose memory runs out
constexpr size_t kLinesMax = 10;                  // of what the tracer said
constexpr std::string_view kMark = "headroom: ";  // begins the tracer's own last words

// The folder that holds our Python package: beside us in an installed tree
// (PREFIX/share/headroom/python), or the checkout that we were built in.
Result<std::string> package_folder() {
  static constexpr std::array<std::string_view, 2> kPlaces{"share/headroom/python", "python"};
  if (auto folder = beside_program(kPlaces, "headroom/trace_module.py")) return *folder;
  return Error{ErrorCode::unavailable, "Headroom's Python package is not beside its program",
               program_path(), "install both with `cmake --install`, or run from the checkout"};
}

std::string interpreter(const std::string& package) {
  if (std::string named = environment_value("HEADROOM_PYTHON"); !named.empty()) return named;
  const std::string beside = (fs::path(package).parent_path() / ".venv/bin/python").string();
  for (const std::string& python : {std::string(".venv/bin/python"), beside}) {
    if (access(python.c_str(), X_OK) == 0) return python;
  }
  return "python3";
}

std::string dtype_word(op::DType dtype) { return std::string(op::dtype_name(dtype)); }

ProcessOptions tracer_process(const TraceRequest& request, const std::string& package,
                              const std::string& graph_file) {
  ProcessOptions options;
  options.timeout = kTraceTime;
  options.arguments = {
      interpreter(package), "-m",     "headroom.trace_module", request.target, "--out",
      graph_file,           "--sdpa", request.attention};
  const auto add = [&](const char* flag, std::string value) {
    options.arguments.emplace_back(flag);
    options.arguments.push_back(std::move(value));
  };
  if (request.batch) add("--batch", std::to_string(*request.batch));
  if (request.sequence) add("--seq", std::to_string(*request.sequence));
  if (request.dtype) add("--dtype", dtype_word(*request.dtype));
  if (request.autocast) add("--autocast", dtype_word(*request.autocast));
  const std::string theirs = environment_value("PYTHONPATH");
  options.environment = {{"PYTHONPATH", package + (theirs.empty() ? "" : ":" + theirs)},
                         {"PYTHONDONTWRITEBYTECODE", "1"}};
  return options;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The tracer's own last words, or where it has none (Python itself failed) the end of what was
// said.
std::vector<std::string_view> last_words(std::string_view spoken) {
  std::vector<std::string_view> lines = lines_of(spoken);
  size_t first = lines.size();
  while (first > 0 && !lines[first - 1].starts_with(kMark)) --first;
  if (first > 0) {
    lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(first - 1));
    lines.front().remove_prefix(kMark.size());
    if (lines.size() > kLinesMax) lines.resize(kLinesMax);
  } else if (lines.size() > kLinesMax) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kLinesMax));
  }
  return lines;
}

}  // namespace

Error tracer_error(const std::string& target, int exit_code, const std::string& spoken) {
  const std::vector<std::string_view> lines = last_words(spoken);
  Error error{ErrorCode::bad_input, {}, target, {}};
  size_t shown = 0;
  if (lines.empty() || spoken.find(kMark) == std::string::npos) {
    error.message = exit_code == kKilled
                        ? "the trace was killed, as where a machine's memory runs out"
                        : "the trace ended with exit code " + std::to_string(exit_code);
  } else {
    error.message = lines[shown++];
  }
  for (; shown < lines.size(); ++shown) {
    error.hint += (error.hint.empty() ? "" : "\n") + std::string(lines[shown]);
  }
  if (exit_code == kNotHere) {
    error.code = ErrorCode::unavailable;
    error.hint =
        "install PyTorch for that Python (pip install torch) and a C++ compiler, or name "
        "another Python: HEADROOM_PYTHON=/path/to/python";
  }
  return error;
}

Result<TracedGraph> trace_function(const TraceRequest& request) {
  HEADROOM_ASSIGN(const std::string package, package_folder());
  HEADROOM_ASSIGN(const TemporaryFile file, TemporaryFile::make());
  const ProcessOptions process = tracer_process(request, package, file.path());
  auto done = run_process(process);
  if (!done) {
    Error error = std::move(done).error();
    error.hint = "tracing " + request.target + " needs a Python with PyTorch; HEADROOM_PYTHON " +
                 "names one";
    return error;
  }
  if (done->exit_code != 0) return tracer_error(request.target, done->exit_code, done->spoken);
  const std::string place = "trace of " + request.target;
  const auto json = text::read_json_file(file.path(), kTraceLimits);
  if (!json) return Error{ErrorCode::bad_input, json.error().message, place, {}};
  return read_traced_graph({*json, place});
}

}  // namespace headroom::model
