#include "ops/program_draft.h"

#include <algorithm>
#include <unordered_map>

namespace headroom::ops {
namespace {

using formats::is_device;
using formats::kNone;
using formats::TraceEvent;
using formats::TraceEventKind;
using timing::CallKind;
using timing::ReplayCall;
using timing::ReplayKernel;

bool is_in_window(const ProgramDraft& run, int64_t time) {
  return time >= run.links.start_ns() && time < run.links.end_ns();
}

// Calls that launch something or wait, by start; then their kernels.
void find_calls(ProgramDraft& run) {
  std::unordered_map<uint32_t, std::vector<uint32_t>> launched;
  for (uint32_t i = 0; i < run.trace.events.size(); ++i) {
    if (is_device(run.event(i).kind) && run.links.launch[i] != kNone) {
      launched[run.links.launch[i]].push_back(i);
    }
  }
  for (uint32_t i = 0; i < run.trace.events.size(); ++i) {
    if (run.event(i).kind != TraceEventKind::call || !is_in_window(run, run.event(i).start_ns))
      continue;
    const auto kernels = launched.find(i);
    const bool is_wait = contains(run.trace.name_of(run.event(i)), "Synchronize");
    if (kernels == launched.end() && !is_wait) continue;
    HostCall call{i, {}};
    if (kernels != launched.end()) call.launched = std::move(kernels->second);
    run.calls.push_back(std::move(call));
  }
  for (const HostCall& call : run.calls) {
    for (const uint32_t kernel : call.launched) run.recording.events.push_back(kernel);
  }
}

// What was launched before the begin and is not done then, in order of its begin; what a stream
// shows behind the first kernel of a call is of calls that are not in the recording.
void find_earlier(ProgramDraft& run) {
  std::vector<bool> is_seen(run.trace.tracks.size(), false);
  std::vector<bool> is_used(run.trace.tracks.size(), false);
  for (const uint32_t kernel : run.recording.events) is_used[run.event(kernel).track] = true;
  std::vector<uint32_t> earlier;
  for (uint32_t i = 0; i < run.trace.events.size(); ++i) {
    if (!is_device(run.event(i).kind) || !is_used[run.event(i).track]) continue;
    const uint32_t launch = run.links.launch[i];
    const bool is_earlier = launch == kNone || run.event(launch).start_ns < run.links.start_ns();
    if (!is_earlier) is_seen[run.event(i).track] = true;
    if (!is_earlier || is_seen[run.event(i).track] || run.event(i).end_ns() <= run.links.start_ns())
      continue;
    earlier.push_back(i);
  }
  run.recording.program.earlier_count = static_cast<uint32_t>(earlier.size());
  run.recording.events.insert(run.recording.events.begin(), earlier.begin(), earlier.end());
}

uint32_t stream_of(ProgramDraft& run, uint32_t kernel_event) {
  const auto [found, is_new] =
      run.streams.try_emplace(run.event(kernel_event).track, run.streams.size());
  return static_cast<uint32_t>(found->second);
}

void place_kernels(ProgramDraft& run, const std::vector<Work>& work, GroupIndex communication) {
  std::unordered_map<uint32_t, GroupIndex> group_of;
  for (const Work& piece : work) group_of[piece.event] = piece.group;
  timing::Program& program = run.recording.program;
  for (const uint32_t kernel_event : run.recording.events) {
    ReplayKernel kernel;
    kernel.stream = stream_of(run, kernel_event);
    kernel.group = group_of[kernel_event];
    kernel.is_communication = kernel.group == communication;
    // Of what runs at the begin only the rest is to come.
    kernel.duration_ns = run.event(kernel_event).end_ns() -
                         std::max(run.event(kernel_event).start_ns, run.links.start_ns());
    program.kernels.push_back(kernel);
  }
  program.streams = static_cast<uint32_t>(run.streams.size());
}

CallKind kind_of(const ProgramDraft& run, const HostCall& call) {
  if (call.launched.empty()) return CallKind::wait;
  const TraceEvent& last = run.event(call.launched.back());
  const bool is_copy = last.kind == TraceEventKind::copy;
  if (is_copy && run.event(call.event).end_ns() >= last.end_ns()) return CallKind::copy_and_wait;
  const bool is_graph =
      call.launched.size() > 1 || contains(run.trace.name_of(run.event(call.event)), "GraphLaunch");
  return is_graph ? CallKind::launch_graph : CallKind::launch;
}

void place_calls(ProgramDraft& run) {
  timing::Program& program = run.recording.program;
  uint32_t next = program.earlier_count;
  for (const HostCall& host : run.calls) {
    ReplayCall call;
    call.first_kernel = next;
    call.kernel_count = static_cast<uint32_t>(host.launched.size());
    next += call.kernel_count;
    call.kind = kind_of(run, host);
    if (call.kind == CallKind::launch || call.kind == CallKind::launch_graph) {
      call.cost_ns = run.event(host.event).duration_ns;
    }
    program.calls.push_back(call);
  }
}

}  // namespace

void find_launches(ProgramDraft& run, const std::vector<Work>& work, GroupIndex communication) {
  find_calls(run);
  if (run.recording.events.empty()) return;
  find_earlier(run);
  place_kernels(run, work, communication);
  place_calls(run);
}

}  // namespace headroom::ops
