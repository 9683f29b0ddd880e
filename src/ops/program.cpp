#include "ops/program.h"

#include <algorithm>

#include "ops/program_draft.h"

namespace headroom::ops {
namespace {

using formats::is_device;
using formats::TraceEvent;
using timing::kNoCall;

constexpr size_t kMostStreams = 1024;  // no device has as many; it bounds the waits

void find_end(ProgramDraft& run) {
  int64_t host_end = run.links.end_ns();
  if (!run.links.has_steps) {
    host_end = run.links.start_ns();
    for (const TraceEvent& host : run.trace.events) {
      if (!is_device(host.kind)) host_end = std::max(host_end, host.end_ns());
    }
  }
  uint32_t last = kNoCall;
  for (uint32_t i = 0; i < run.calls.size(); ++i) {
    if (run.end_of(i) <= host_end && (last == kNoCall || run.end_of(i) >= run.end_of(last)))
      last = i;
  }
  run.recording.program.last_call = last;
  run.recording.program.tail_ns =
      host_end - (last == kNoCall ? run.links.start_ns() : run.end_of(last));
  int64_t end = host_end;
  for (const uint32_t kernel : run.recording.events)
    end = std::max(end, run.event(kernel).end_ns());
  run.recording.measured_ns = static_cast<double>(end - run.links.start_ns());
}

}  // namespace

std::optional<Recording> record(const formats::Trace& trace, const Links& links,
                                const std::vector<Work>& work, const OperatorRules& rules) {
  ProgramDraft run{trace, links, {}, {}, {}};
  find_launches(run, work, rules.group("communication"));
  if (run.recording.events.empty() || run.streams.size() > kMostStreams) return std::nullopt;
  find_order(run);
  find_waits(run);
  measure_latencies(run);
  find_end(run);
  return std::move(run.recording);
}

}  // namespace headroom::ops
