#include "ops/host_program.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace headroom::ops {
namespace {

using formats::kNone;
using formats::TraceEventKind;

// An operator's time with that of all that it called, and the most of that that is one operator's
// own.
struct Subtree {
  double total_ns = 0;
  double most_ns = 0;
  // What is cut that need not be is still right by its parts' groups; what is not is not.
  [[nodiscard]] bool is_one() const { return most_ns >= 0.9 * total_ns; }
};

// By event, of an operator the one that it counts for: the outermost around it of which nine tenths
// are one operator's own. INVARIANT: what is around an event stands in front of it (links.h).
std::vector<uint32_t> units_of(const RecordedRun& run, const WallTime& wall) {
  const size_t count = run.trace.events.size();
  std::vector<Subtree> subtrees(count);
  for (size_t i = 0; i < run.work.size(); ++i) {
    subtrees[run.work[i].operation].total_ns += std::max(0.0, wall.exposed_ns[i]);
  }
  std::vector<uint32_t> around(count, kNone);
  for (uint32_t i = 0; i < count; ++i) {
    subtrees[i].most_ns = subtrees[i].total_ns;
    const uint32_t parent = run.links.parent[i];
    if (parent == kNone) continue;
    const bool is_operator = run.trace.events[parent].kind == TraceEventKind::host_operator;
    around[i] = is_operator ? parent : around[parent];
  }
  for (size_t i = count; i-- > 0;) {
    if (around[i] == kNone) continue;
    Subtree& outer = subtrees[around[i]];
    outer.total_ns += subtrees[i].total_ns;
    outer.most_ns = std::max(outer.most_ns, subtrees[i].most_ns);
  }
  std::vector<uint32_t> units(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t outer = around[i];
    const bool is_split = outer == kNone || (units[outer] == outer && !subtrees[outer].is_one());
    units[i] = is_split ? i : units[outer];
  }
  return units;
}

struct Unit {
  uint32_t main = kNone;  // the operator with most time of its own
  double main_ns = 0;
  double total_ns = 0;
  GroupIndex group = 0;
};

}  // namespace

std::optional<Recording> record_host(const RecordedRun& run, const WallTime& wall,
                                     const OperatorRules& rules) {
  if (run.links.has_device || wall.total_ns <= 0) return std::nullopt;
  const std::vector<uint32_t> unit_of = units_of(run, wall);
  std::vector<Unit> units;
  std::unordered_map<uint32_t, size_t> places;    // of units
  std::unordered_map<uint32_t, double> own_ns;    // of operators
  for (size_t i = 0; i < run.work.size(); ++i) {  // in order of time
    const Work& piece = run.work[i];
    if (wall.exposed_ns[i] <= 0) continue;
    const auto [place, is_new] = places.try_emplace(unit_of[piece.operation], units.size());
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
  program.latencies.emplace_back();  // nothing lies between operators but what stays as it is
  for (uint32_t i = 0; i < units.size(); ++i) {
    timing::ReplayKernel kernel;
    kernel.group = units[i].group;
    kernel.is_communication = units[i].group == rules.group("communication");
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
