// RecordedRun: a trace with what is known of it before anything is counted: links, and work with
// groups.
//
// What an answer about one trace, a comparison of two and the ranks of one run begin with.
// Blocking, thread-safe; a second for a trace of 200 MB.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "formats/trace.h"
#include "ops/links.h"
#include "ops/work.h"

namespace headroom::ops {

struct RecordedRun {
  formats::Trace trace;
  Links links;
  std::vector<Work> work;

  // The device that the kernels ran on, "CPU" where there is none, "" where the trace is silent.
  [[nodiscard]] std::string device() const;
  // There are calls into a device's runtime, but nothing that they put on it; or the file was cut
  // off before what a device did, and names one, or did not get to name any.
  [[nodiscard]] bool lacks_kernels() const;
  // Launches within the steps, and of how many of them the kernel is not there.
  struct Launches {
    int64_t count = 0;
    int64_t lost = 0;
  };
  [[nodiscard]] Launches launches() const;
  // How many devices the kernels ran on.
  [[nodiscard]] int64_t device_count() const;
  // Whose operators are not PyTorch's.
  [[nodiscard]] bool is_of_onnx_runtime() const { return trace.format == "ONNX Runtime"; }
};

// A trace without kernels and operators is an Error.
Result<RecordedRun> run_of(formats::Trace trace, const OperatorRules& rules);
// To be held against another: one that has durations alone (Trace::has_starts) is an Error.
Result<RecordedRun> read_run(const std::string& file, const OperatorRules& rules);

// The shapes of an operator, "[[64,512],[512,512]]"; "" where they were not recorded.
std::string_view shapes_of(const formats::Trace& trace, uint32_t operation);

}  // namespace headroom::ops
