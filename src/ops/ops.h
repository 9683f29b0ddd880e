// ops: where does the time of a recorded run go?
//
// Reads a profiler's trace, links kernels to operators, sorts them into groups and counts in three
// ways (accounts.h). Blocking, thread-safe; a second for a trace of 200 MB.
#pragma once

#include <string>

#include "base/result.h"
#include "formats/trace.h"
#include "ops/answer.h"
#include "ops/horizon.h"
#include "ops/rules.h"
#include "ops/run.h"
#include "timing/int8_quotient.h"
#include "timing/timing_model.h"

namespace headroom::ops {

struct OpsQuestion {
  std::string file;
  std::string rules;  // a file of rules before the built-in ones, or ""
  // Whose limits the operators are held against, as DeviceCatalogue::find takes it; "": the one
  // that the trace names, where it is known.
  std::string device;
  std::string faster;           // "gemm=4,attention=2", to be asked about, or ""
  std::string other_device;     // to be asked about by roofline, or ""
  std::string execution_trace;  // of PyTorch, of the same run, or ""
  std::string capture;          // a trace of the capture of its graphs, or ""
  std::string counters;         // of Nsight Compute, or ""
  std::string calibration;      // what `bench device` measured on the machine that ran, or ""
};

// What a run is held against; each may be null.
struct Against {
  const device::Device* device = nullptr;      // that ran: its limits
  const device::Device* other = nullptr;       // to be asked about by roofline
  const timing::TimingModel* laws = nullptr;   // of operators measured on `device`, a processor
  const timing::Int8Quotient* int8 = nullptr;  // of its linear layers
};

// The answer, and the run that it is about, which a page draws.
struct AnsweredRun {
  OpsAnswer answer;
  RecordedRun run;
};
Result<AnsweredRun> answer_run(const OpsQuestion& question);
Result<OpsAnswer> answer(const OpsQuestion& question);

// The same for a trace that is read. An empty one is an Error.
Result<OpsAnswer> answer(formats::Trace trace, const OperatorRules& rules);
OpsAnswer answer(const RecordedRun& run, const OperatorRules& rules, const Against& against = {},
                 const std::vector<FasterGroup>& faster = {});

}  // namespace headroom::ops
