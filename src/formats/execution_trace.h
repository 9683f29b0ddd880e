// Execution traces of PyTorch (torch.profiler.ExecutionTraceObserver), and what Chakra converts
// them to (chakra_nodes.h): the operators of a run with the shapes and types of what they took, and
// an id that the profiler's trace of the same run knows them by.
//
// Joined with that trace they say what it may lack: shapes, where it was recorded without, and the
// types within lists of tensors, which it never has. Schemas 1.0.1 to 1.1.1-chakra (recorded files,
// and torch/csrc/profiler/standalone/execution_trace_observer.cpp of PyTorch 2.13). Streams;
// blocking, any thread.
#pragma once

#include <string>
#include <unordered_map>

#include "base/result.h"
#include "formats/trace_builder.h"
#include "text/byte_feed.h"

namespace headroom::formats {

struct ExecutedOperator {
  uint32_t name = kNone;
  uint32_t detail = kNone;  // shapes and types, in the form of TraceEvent::detail
};

struct ExecutionTrace {
  std::string file;
  std::string schema;
  Names names;
  std::unordered_map<int64_t, ExecutedOperator> operators;  // by the profiler's id (rf_id)
  int64_t nodes = 0;
  int64_t fault_count = 0;
  std::string first_fault;
  bool is_cut = false;
};

Result<ExecutionTrace> read_execution_trace(text::ByteFeed feed, const TraceLimits& limits = {});
Result<ExecutionTrace> read_execution_trace(const std::string& path);

struct Joined {
  int64_t joined = 0;     // operators of the trace that were found by id and name
  int64_t shaped = 0;     // of those, whose shapes or types are new
  int64_t others = 0;     // whose id is another operator's there
  int64_t operators = 0;  // of the trace
};

// Gives the trace's operators the shapes and types of the execution trace. Where ids often belong
// to operators of other names the two are of different runs (is_same_run), and what they have in
// common is chance.
Joined join(Trace& trace, const ExecutionTrace& execution);
[[nodiscard]] bool is_same_run(const Joined& joined);

}  // namespace headroom::formats
