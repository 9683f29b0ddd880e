// From a trace to a program that can be replayed (timing/host_replay.h).
//
// What the recording says of the device's own clock stays here: a program gets durations of kernels
// and host time between calls, and of begins and waits only six numbers for the machine (launch
// latency and gap between kernels, of graphs apart; time to wake up, cost of a wait), each the
// median of one half of the recording and used for the other half. What is taken over as it was is
// what nobody recorded: work that held up a stream's first kernel or was within a graph, and waits
// of the host before anything is known to be on the device; `unseen_ns` is how much that is, and
// the replay's error is of the rest. A copy is one that the host waits for where its call
// ended after the copy did. Waits between streams are the profiler's where it recorded them; else
// as PyTorch uses cudaStreamWaitEvent, held against the order of what was recorded
// (stream_waits.h).
//
// Linear but for sorts; pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/trace.h"
#include "ops/links.h"
#include "ops/work.h"
#include "timing/host_replay.h"

namespace headroom::ops {

struct Recording {
  timing::Program program;
  std::vector<uint32_t> events;  // of the trace, by kernel of the program
  double measured_ns = 0;        // of the steps, to the end of the host's and the device's part
  double unseen_ns = 0;          // taken over as it was, since what it was for was not recorded
  bool is_host = false;          // operators of a CPU, one behind the other (host_program.h)
};

// Nothing where the trace has no launches or no kernels to replay.
std::optional<Recording> record(const formats::Trace& trace, const Links& links,
                                const std::vector<Work>& work, const OperatorRules& rules);

}  // namespace headroom::ops
