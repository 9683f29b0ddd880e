#include "ops/ops.h"

#include <algorithm>
#include <map>

#include "ops/accounts.h"
#include "ops/bound.h"
#include "ops/horizon.h"
#include "ops/host_fusion.h"
#include "ops/host_program.h"
#include "ops/links.h"
#include "ops/measured_linear.h"
#include "ops/notes.h"
#include "ops/program.h"
#include "ops/run.h"
#include "ops/work.h"

namespace headroom::ops {
namespace {

using formats::kNone;
using formats::Trace;
using formats::TraceEvent;

double ms_of(double ns) { return ns / 1e6; }
double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

Accounting accounting_of(const GroupTimes& times, const OperatorRules& rules) {
  Accounting accounting;
  double total = 0;
  for (const double time : times) total += time;
  accounting.total_ms = ms_of(total);
  for (size_t i = 0; i < times.size(); ++i) {
    const OperatorGroup& group = rules.groups()[i];
    accounting.groups.push_back(
        {group.name, group.title, ms_of(times[i]), percent(times[i], total)});
  }
  return accounting;
}

Accounting wall_accounting(const WallTime& wall, const OperatorRules& rules) {
  Accounting accounting = accounting_of(wall.groups, rules);
  accounting.total_ms = ms_of(wall.total_ns);
  for (GroupShare& group : accounting.groups) {
    group.pct = percent(group.ms, accounting.total_ms);
  }
  accounting.groups.push_back(
      {"idle", "idle", ms_of(wall.idle_ns), percent(wall.idle_ns, wall.total_ns)});
  return accounting;
}

Accounting paper_accounting(const PaperTime& paper, const OperatorRules& rules) {
  Accounting accounting;
  accounting.total_ms = ms_of(paper.total_ns);
  for (size_t i = 0; i < paper.paper_groups.size(); ++i) {
    const std::string& name = rules.paper_groups()[i];
    accounting.groups.push_back(
        {name, name, ms_of(paper.paper_groups[i]), percent(paper.paper_groups[i], paper.total_ns)});
  }
  return accounting;
}

// Earlier work that still runs in later steps: at both ends a part of one, between them all of
// each. INVARIANT: steps are in order and disjoint. Constant for a piece, whatever it runs over.
class Backlog {
 public:
  explicit Backlog(const std::vector<TraceStep>& steps)
      : steps_(steps), parts_ns_(steps.size(), 0), covers_(steps.size() + 1, 0) {}

  void add(const Work& piece) {
    const auto ends = [](const TraceStep& step, int64_t time) { return step.end_ns <= time; };
    const auto begins = [](const TraceStep& step, int64_t time) { return step.start_ns < time; };
    const auto first = std::lower_bound(steps_.begin(), steps_.end(), piece.start_ns, ends);
    const auto past = std::lower_bound(first, steps_.end(), piece.end_ns, begins);
    const auto from = static_cast<int32_t>(first - steps_.begin());
    const auto to = static_cast<int32_t>(past - steps_.begin()) - 1;
    // Its own step and those before are not behind it.
    if (from > piece.step && from <= to) add_part(piece, from);
    if (to > piece.step && to > from) add_part(piece, to);
    const int32_t inner = std::max(from, piece.step) + 1;
    if (inner >= to) return;
    ++covers_[static_cast<size_t>(inner)];
    --covers_[static_cast<size_t>(to)];
  }

  [[nodiscard]] std::vector<double> ns() const {
    std::vector<double> all(steps_.size());
    int64_t covering = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      covering += covers_[i];
      const auto length = static_cast<double>(steps_[i].end_ns - steps_[i].start_ns);
      all[i] = parts_ns_[i] + static_cast<double>(covering) * length;
    }
    return all;
  }

 private:
  void add_part(const Work& piece, int32_t at) {
    const TraceStep& step = steps_[static_cast<size_t>(at)];
    const int64_t inside =
        std::min(piece.end_ns, step.end_ns) - std::max(piece.start_ns, step.start_ns);
    parts_ns_[static_cast<size_t>(at)] += static_cast<double>(std::max<int64_t>(inside, 0));
  }

  const std::vector<TraceStep>& steps_;
  std::vector<double> parts_ns_;
  std::vector<int64_t> covers_;  // by step, how many more cover it whole than the one before
};

std::vector<StepTime> steps_of(const std::vector<Work>& work, const Links& links) {
  std::vector<StepTime> steps;
  for (size_t i = 0; i < links.steps.size(); ++i) {
    steps.push_back({links.steps[i].name, ms_of(static_cast<double>(links.step_ns(i))), 0, 0});
  }
  Backlog backlog(links.steps);
  for (const Work& piece : work) {
    if (piece.step != kOutside) {
      steps[static_cast<size_t>(piece.step)].kernel_ms +=
          ms_of(static_cast<double>(piece.duration_ns()));
    }
    backlog.add(piece);
  }
  const std::vector<double> behind_ns = backlog.ns();
  for (size_t i = 0; i < steps.size(); ++i) steps[i].backlog_ms = ms_of(behind_ns[i]);
  return steps;
}

// A row that grows while work is counted.
struct Row {
  GroupTimes groups;
  double ns = 0;
  int64_t count = 0;
  GroupIndex name_group = 0;

  void add(const Work& piece, size_t group_count) {
    groups.resize(group_count, 0.0);
    groups[piece.group] += static_cast<double>(piece.duration_ns());
    ns += static_cast<double>(piece.duration_ns());
  }
  [[nodiscard]] size_t group() const {
    return static_cast<size_t>(std::max_element(groups.begin(), groups.end()) - groups.begin());
  }
};

// By name of the innermost operator; work without one by its own name.
std::vector<OperatorTime> operators_of(const RecordedRun& run, const OperatorRules& rules,
                                       double total_ns) {
  const Trace& trace = run.trace;
  std::map<uint32_t, Row> rows;
  OperatorCount count(trace, run.links);  // an event belongs to one row
  for (const Work& piece : run.work) {
    if (piece.step == kOutside) continue;
    const bool is_linked = piece.own_operation() != kNone;
    const uint32_t event = is_linked ? piece.own_operation() : piece.event;
    Row& row = rows[trace.events[event].name];
    row.add(piece, rules.groups().size());
    row.count += count.add(piece, event);
  }
  std::vector<OperatorTime> operators;
  for (const auto& [name, row] : rows) {
    operators.push_back({std::string(trace.names.at(name)), rules.groups()[row.group()].name,
                         row.count, ms_of(row.ns), percent(row.ns, total_ns)});
  }
  std::stable_sort(operators.begin(), operators.end(), [](const auto& a, const auto& b) {
    return a.kernel_ms != b.kernel_ms ? a.kernel_ms > b.kernel_ms : a.name < b.name;
  });
  return operators;
}

std::vector<KernelRow> kernels_of(const Trace& trace, const std::vector<Work>& work,
                                  const OperatorRules& rules, double total_ns) {
  std::map<std::pair<uint32_t, uint32_t>, Row> rows;
  for (const Work& piece : work) {
    if (piece.step == kOutside) continue;
    const bool is_linked = piece.own_operation() != kNone;
    Row& row = rows[{trace.events[piece.event].name,
                     is_linked ? trace.events[piece.own_operation()].name : kNone}];
    row.add(piece, rules.groups().size());
    row.name_group = piece.name_group;
    ++row.count;
  }
  std::vector<KernelRow> kernels;
  for (const auto& [names, row] : rows) {
    kernels.push_back({std::string(trace.names.at(names.first)),
                       names.second == kNone ? "" : std::string(trace.names.at(names.second)),
                       rules.groups()[row.group()].name, rules.groups()[row.name_group].name,
                       row.count, ms_of(row.ns), percent(row.ns, total_ns)});
  }
  std::stable_sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) {
    return a.kernel_ms != b.kernel_ms ? a.kernel_ms > b.kernel_ms : a.name < b.name;
  });
  return kernels;
}

TraceFacts facts_of(const RecordedRun& run) {
  const Trace& trace = run.trace;
  const Links& links = run.links;
  TraceFacts facts;
  facts.file = trace.file;
  facts.format = trace.format;
  facts.device = run.device();
  facts.rank = trace.rank;
  facts.events = trace.records;
  facts.has_device = links.has_device;
  facts.lacks_kernels = run.lacks_kernels();
  facts.lacks_devices = trace.lacks_devices && trace.devices.empty() && !links.has_calls;
  if (trace.is_cut && links.has_device) {
    const RecordedRun::Launches launches = run.launches();
    facts.launches = launches.count;
    facts.lost_launches = launches.lost;
  }
  facts.devices = run.device_count();
  facts.has_steps = links.has_steps;
  facts.has_starts = trace.has_starts;
  facts.is_partial = trace.is_cut || trace.fault_count > 0;
  facts.is_cut = trace.is_cut;
  for (const formats::TraceFault& fault : trace.faults) {
    facts.faults.push_back(fault.place + ": " + fault.message);
  }
  const auto shown = static_cast<int64_t>(trace.faults.size());
  if (trace.fault_count > shown) {
    facts.faults.push_back("and " + std::to_string(trace.fault_count - shown) + " more");
  }
  return facts;
}

// The change, and what it rests on. Nothing without what this machine was measured to do.
std::optional<Scenario> host_int8(const Recording& recording, const RecordedRun& run,
                                  const OperatorRules& rules, const Against& against,
                                  std::vector<std::string>& notes) {
  if (against.device == nullptr || against.device->vendor != device::Vendor::cpu) return {};
  if (against.laws != nullptr) {
    auto measured = measured_int8(recording, run, *against.device, *against.laws, against.int8);
    if (measured) {
      notes.emplace_back(
          "linear layers in int8 by the calibration: the engine's own (quantize_dynamic), of their "
          "shapes");
    }
    return measured;
  }
  auto rated = host_int8_by_rates(recording, run, rules, *against.device);
  if (rated) {
    notes.emplace_back(
        "linear layers in int8 by the rates that were given: how well those hold for this model is "
        "not in the interval");
  }
  return rated;
}

// On a CPU what an operator would take by its traffic alone was wrong by up to 600 % (docs:
// 2026-11-21-ops-pairs): fusing goes by what the chains themselves were seen to do, int8 by what
// this machine was measured to do alone.
Scenarios host_changes(const Recording& recording, const RecordedRun& run,
                       const OperatorRules& rules, const Against& against) {
  Scenarios changes;
  changes.notes.emplace_back(
      "on a CPU operators follow one another, so that the horizon is a sum: that the run as it was "
      "comes out says nothing of how good it is");
  if (auto fused = host_fusion(recording, run, rules)) {
    changes.all.push_back(std::move(*fused));
    changes.notes.emplace_back(
        "elementwise chains fused: loops joined, as the trace's own arithmetic moves data; "
        "attention "
        "that a compiler recognizes and what a compiled function costs to call are not in it");
  }
  if (auto int8 = host_int8(recording, run, rules, against, changes.notes)) {
    changes.all.push_back(std::move(*int8));
  } else {
    const std::string engine = run.is_of_onnx_runtime() ? " --engine onnxruntime" : "";
    changes.notes.push_back(
        "linear layers in int8 are predicted by what they take on this machine: --calibration FILE "
        "of `headroom bench device" +
        engine + "`");
  }
  return changes;
}

// What hangs on when things ran: wall time, what bounds the run, and what changes would give.
void add_times(const RecordedRun& run, const OperatorRules& rules, const Against& against,
               const std::vector<FasterGroup>& faster, OpsAnswer& answer) {
  const WallTime wall = wall_time(run.trace, run.work, run.links, rules);
  answer.steps = steps_of(run.work, run.links);
  answer.wall_time = wall_accounting(wall, rules);
  answer.idle = {ms_of(wall.idle_ns), ms_of(wall.idle_host_ns), ms_of(wall.idle_launch_ns),
                 ms_of(wall.idle_unknown_ns)};
  answer.communication_hidden_ms = ms_of(wall.communication_hidden_ns);
  find_bound(answer);
  std::optional<Recording> recording = record(run.trace, run.links, run.work, rules);
  if (!recording && !run.lacks_kernels()) recording = record_host(run, wall, rules);
  if (run.lacks_kernels() || lacks_many_kernels(answer.trace)) {
    answer.bound = Bound::not_recorded;
  } else if (recording) {
    answer.replay = replay_error(*recording);
    const Scenarios asked = recording->is_host
                                ? host_changes(*recording, run, rules, against)
                                : scenarios(*recording, run, rules, against.device, against.other);
    answer.horizon = horizon(*recording, answer, rules, asked.all, faster);
    answer.notes = asked.notes;
    find_bound_by_replay(answer);
  } else {
    answer.notes.push_back(
        "no launches were recorded, so that what a change would give cannot be replayed" +
        std::string(faster.empty() ? "" : ", nor what --faster asks for") +
        "; record the host's calls beside the kernels");
  }
}

}  // namespace

OpsAnswer answer(const RecordedRun& run, const OperatorRules& rules, const Against& against,
                 const std::vector<FasterGroup>& faster) {
  const Trace& trace = run.trace;
  const Links& links = run.links;
  const std::vector<Work>& work = run.work;
  Classifier classifier(rules, trace.names);
  OpsAnswer answer;
  answer.trace = facts_of(run);
  const KernelTime kernels = kernel_time(trace, work, links, rules.groups().size());
  const PaperTime paper = paper_time(trace, work, links, classifier);
  answer.trace.kernels = kernels.launched;
  answer.kernel_time = accounting_of(kernels.groups, rules);
  answer.nongemm_bench = accounting_of(paper.groups, rules);
  answer.nongemm_bench_paper = paper_accounting(paper, rules);
  const double total_ns = answer.kernel_time.total_ms * 1e6;
  answer.coverage.unlinked_pct_of_kernel_time = percent(kernels.unlinked_ns, total_ns);
  answer.coverage.unclassified_pct_of_kernel_time =
      percent(kernels.groups[rules.unclassified()], total_ns);
  answer.coverage.in_graphs_pct_of_kernel_time = percent(kernels.graph_ns, total_ns);
  if (links.has_device && kernels.linked_ns > 0) {
    answer.coverage.names_agree_pct_of_kernel_time =
        percent(kernels.name_agrees_ns, kernels.linked_ns);
  }
  answer.operators = operators_of(run, rules, total_ns);
  answer.kernels = kernels_of(trace, work, rules, total_ns);
  if (against.device != nullptr) answer.roofline = roofline(run, rules, *against.device);
  if (trace.has_starts) {
    answer.backlog_ms = ms_of(kernels.backlog_ns);
    answer.overrun_ms = ms_of(kernels.overrun_ns);
    add_times(run, rules, against, faster, answer);
  } else {
    answer.bound = Bound::no_starts;
    if (!faster.empty() || against.other != nullptr) {
      answer.notes.emplace_back(
          "without times of start nothing can be replayed: what --faster and --other-device ask "
          "for "
          "is not answered");
    }
  }
  add_notes(run, kernels, answer);
  return answer;
}

Result<OpsAnswer> answer(Trace trace, const OperatorRules& rules) {
  HEADROOM_ASSIGN(const RecordedRun run, run_of(std::move(trace), rules));
  return answer(run, rules);
}

}  // namespace headroom::ops
