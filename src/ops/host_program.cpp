#include "ops/host_program.h"

#include <unordered_map>

namespace headroom::ops {
namespace {

using formats::kNone;
using formats::TraceEventKind;

// The outermost operator around an operator, itself where there is none.
uint32_t unit_of(const RecordedRun& run, uint32_t operation) {
  uint32_t unit = operation;
  for (uint32_t at = operation; at != kNone; at = run.links.parent[at]) {
    if (run.trace.events[at].kind == TraceEventKind::host_operator) unit = at;
  }
  return unit;
}

struct Unit {
  uint32_t main = kNone;  // the operator with most time of its own
  double main_ns = 0;
  double total_ns = 0;
  GroupIndex group = 0;
};

}  // namespace

std::optional<Recording> record_host(const RecordedRun& run, const WallTime& wall) {
  if (run.links.has_device || wall.total_ns <= 0) return std::nullopt;
  std::vector<Unit> units;
  std::unordered_map<uint32_t, size_t> places;    // of units
  std::unordered_map<uint32_t, double> own_ns;    // of operators
  for (size_t i = 0; i < run.work.size(); ++i) {  // in order of time
    const Work& piece = run.work[i];
    if (wall.exposed_ns[i] <= 0) continue;
    const auto [place, is_new] = places.try_emplace(unit_of(run, piece.operation), units.size());
    if (is_new) units.emplace_back();
    Unit& unit = units[place->second];
    unit.total_ns += wall.exposed_ns[i];
    const double own = own_ns[piece.operation] += wall.exposed_ns[i];
    if (own <= unit.main_ns) continue;
    unit.main = piece.operation;
    unit.main_ns = own;
    unit.group = piece.group;
  }
  if (units.empty()) return std::nullopt;
  Recording recording;
  timing::Program& program = recording.program;
  program.streams = 1;
  program.backlog_ns.assign(1, 0);
  program.latencies.emplace_back();  // nothing lies between operators but what stays as it is
  for (uint32_t i = 0; i < units.size(); ++i) {
    timing::ReplayKernel kernel;
    kernel.group = units[i].group;
    kernel.duration_ns = static_cast<int64_t>(units[i].total_ns);
    program.kernels.push_back(kernel);
    recording.events.push_back(units[i].main);
    timing::ReplayCall call;
    call.after = i == 0 ? timing::kNoCall : i - 1;
    call.first_kernel = i;
    call.kernel_count = 1;
    program.calls.push_back(call);
  }
  program.kernels.front().unseen_ns = static_cast<int64_t>(wall.idle_ns);
  program.last_call = static_cast<uint32_t>(units.size() - 1);
  recording.measured_ns = wall.total_ns;
  recording.is_host = true;
  return recording;
}

}  // namespace headroom::ops
