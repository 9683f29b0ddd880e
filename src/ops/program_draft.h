// ProgramDraft: a recorded run on its way to a program (program.h): the calls that launch or wait,
// the kernels that they launched, and the streams that those ran on. Each step of the way has its
// file: what was launched here, what each call follows in program_order.cpp, what waits for what in
// program_waits.cpp, what launching and waiting cost in program_latencies.cpp.
//
// Internal to `ops`; not synchronised. Each step is linear but for sorts.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ops/contains.h"
#include "ops/program.h"

namespace headroom::ops {

// A call that matters to the replay.
struct HostCall {
  uint32_t event = 0;
  std::vector<uint32_t> launched;  // device events, in order of their begin
};

struct ProgramDraft {
  const formats::Trace& trace;
  const Links& links;
  std::vector<HostCall> calls;         // by start, as the program's
  std::map<uint32_t, size_t> streams;  // the program's, by track of the trace
  Recording recording;                 // what is made

  [[nodiscard]] const formats::TraceEvent& event(uint32_t index) const {
    return trace.events[index];
  }
  [[nodiscard]] int64_t end_of(uint32_t call) const { return event(calls[call].event).end_ns(); }
};

// Calls, kernels and streams; the program's are as many, and know what they launch. Nothing to be
// replayed where no kernel is found. To be called first.
void find_launches(ProgramDraft& run, const std::vector<Work>& work, GroupIndex communication);
// What each call follows, and how long after it.
void find_order(ProgramDraft& run);
// What kernels and calls wait for: as recorded, else as PyTorch uses streams, and what is left as
// the order of what ran explains it (stream_waits.h).
void find_waits(ProgramDraft& run);
// Latencies of each half of the recording, for the kernels of the other.
void measure_latencies(ProgramDraft& run);

}  // namespace headroom::ops
