#include "model/tracer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/process.h"
#include "base/python.h"

namespace headroom::model {

namespace {

constexpr std::chrono::seconds kTraceTime{600};
constexpr int kNotHere = 4;                       // EXIT_UNAVAILABLE of trace_module.py
constexpr int kKilled = 128 + 9;                  // as by a machine whose memory runs out
constexpr std::string_view kMark = "headroom: ";  // begins the tracer's own words

std::string dtype_word(op::DType dtype) { return std::string(op::dtype_name(dtype)); }

std::vector<std::string> tracer_arguments(const TraceRequest& request,
                                          const std::string& graph_file) {
  std::vector<std::string> arguments{request.target, "--out", graph_file, "--sdpa",
                                     request.attention};
  const auto add = [&](const char* flag, std::string value) {
    arguments.emplace_back(flag);
    arguments.push_back(std::move(value));
  };
  if (request.batch) add("--batch", std::to_string(*request.batch));
  if (request.sequence) add("--seq", std::to_string(*request.sequence));
  if (request.dtype) add("--dtype", dtype_word(*request.dtype));
  if (request.autocast) add("--autocast", dtype_word(*request.autocast));
  if (request.forward_only) arguments.emplace_back("--forward-only");
  return arguments;
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
    if (!error.hint.empty()) error.hint += '\n';
    error.hint += lines[shown];
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
  // Python and PyTorch take seconds to say so.
  const std::string file_of_user = request.target.substr(0, request.target.rfind(':'));
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file_of_user, ignored)) {
    return Error{ErrorCode::bad_input, "no such file", file_of_user, "FILE.py:FUNCTION"};
  }
  HEADROOM_ASSIGN(const TemporaryFile file, TemporaryFile::make());
  HEADROOM_ASSIGN(ProcessOptions process,
                  python_module("trace_module", tracer_arguments(request, file.path())));
  process.timeout = kTraceTime;
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
