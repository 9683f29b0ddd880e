#include "ops/run.h"

#include <set>
#include <vector>

#include "formats/read_trace.h"

namespace headroom::ops {

using formats::kNone;
using formats::Trace;

// By the number that kernels carry in the file's list of devices.
std::string RecordedRun::device() const {
  if (lacks_kernels()) {
    if (!trace.devices.empty()) return trace.devices.front().name;
    return links.has_calls ? "a device" : "device not known";
  }
  if (!links.has_device) return "CPU";
  if (work.empty() || trace.devices.empty()) return "";
  const std::string& number = trace.tracks[trace.events[work.front().event].track].process;
  size_t index = 0;
  for (const char c : number) {
    if (c < '0' || c > '9' || index > trace.devices.size()) return "";
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  return index < trace.devices.size() ? trace.devices[index].name : "";
}

bool RecordedRun::lacks_kernels() const {
  if (links.has_device) return false;
  return links.has_calls || trace.lacks_devices || (trace.is_cut && !trace.devices.empty());
}

RecordedRun::Launches RecordedRun::launches() const {
  std::vector<bool> has_kernel(trace.events.size());
  for (const uint32_t call : links.launch) {
    if (call != kNone) has_kernel[call] = true;
  }
  Launches launches;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const formats::TraceEvent& event = trace.events[i];
    if (event.kind != formats::TraceEventKind::call) continue;
    // cudaLaunchKernel, cuLaunchKernelEx, hipExtModuleLaunchKernel.
    const bool is_launch = trace.name_of(event).find("LaunchKernel") != std::string_view::npos;
    if (!is_launch || step_at(links, event.start_ns) == kOutside) continue;
    ++launches.count;
    launches.lost += has_kernel[i] ? 0 : 1;
  }
  return launches;
}

int64_t RecordedRun::device_count() const {
  std::set<std::string_view> devices;
  for (const Work& piece : work) {
    const formats::TraceTrack& track = trace.tracks[trace.events[piece.event].track];
    if (track.is_device) devices.insert(track.process);
  }
  return static_cast<int64_t>(devices.size());
}

Result<RecordedRun> run_of(Trace trace, const OperatorRules& rules) {
  RecordedRun run;
  run.trace = std::move(trace);
  run.links = link(run.trace);
  Classifier classifier(rules, run.trace.names);
  run.work = work_of(run.trace, run.links, classifier);
  if (run.work.empty() && !run.trace.faults.empty()) {
    const formats::TraceFault& fault = run.trace.faults.front();
    return Error{
        ErrorCode::bad_input,
        "holds no kernel and no operator that could be read: " + fault.place + ": " + fault.message,
        run.trace.file, "record it again, or copy it anew"};
  }
  if (run.work.empty()) {
    return Error{
        ErrorCode::bad_input, "holds no kernel and no operator", run.trace.file,
        run.trace.has_starts
            ? "record with torch.profiler and activities CPU and CUDA"
            : "join it with the profiler's trace (chakra_trace_link) before it is converted"};
  }
  return run;
}

Result<RecordedRun> read_run(const std::string& file, const OperatorRules& rules) {
  HEADROOM_ASSIGN(Trace trace, formats::read_trace(file));
  if (!trace.has_starts) {
    return Error{ErrorCode::bad_input,
                 "has durations, and not when anything began: it can be held against no other",
                 trace.file, "headroom ops FILE, or the profiler's traces of these runs"};
  }
  return run_of(std::move(trace), rules);
}

std::string_view shapes_of(const Trace& trace, uint32_t operation) {
  if (operation == kNone || trace.events[operation].detail == kNone) return "";
  const std::string_view detail = trace.names.at(trace.events[operation].detail);
  return detail.substr(0, detail.find(' '));
}

}  // namespace headroom::ops
