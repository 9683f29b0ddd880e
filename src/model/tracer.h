// Runs the Python tracer on a user's FILE.py:FUNCTION and reads the graph that it makes.
//
// For a model that no family knows. The tracer (python/headroom/trace_module.py) is a program of
// its own: it needs a Python with PyTorch, runs the user's code, and is stopped where it takes too
// long. Blocking: seconds, most of it Python's imports. Thread-safe; leaves no file behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/traced_graph.h"

namespace headroom::model {

// What is asked of the function; what is nothing stays as the function makes it.
struct TraceRequest {
  std::string target;                 // "train.py:build"
  std::optional<int64_t> batch;       // for a function that takes `batch`
  std::optional<int64_t> sequence;    // for one that takes `seq`
  std::optional<op::DType> dtype;     // of the module's and the inputs' floating-point tensors
  std::optional<op::DType> autocast;  // of the operators, under torch.autocast
  std::string attention = "auto";  // which kernel SDPA chooses: auto, math, flash, efficient, cudnn
  bool forward_only = false;       // as in inference: no loss, no gradients, nothing dropped out

  bool operator==(const TraceRequest&) const = default;
};

// By base/python.h. Errors: unavailable without Python, PyTorch or time; bad_input, with the end of
// Python's traceback, where the user's code fails or cannot be traced.
Result<TracedGraph> trace_function(const TraceRequest& request);

// The Error that the tracer's end amounts to; `spoken` is what it wrote to stderr.
[[nodiscard]] Error tracer_error(const std::string& target, int exit_code,
                                 const std::string& spoken);

}  // namespace headroom::model
