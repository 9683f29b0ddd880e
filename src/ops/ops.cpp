#include "ops/ops.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <unordered_map>

#include "device/catalogue.h"
#include "formats/execution_trace.h"
#include "formats/ncu_csv.h"
#include "formats/read_trace.h"
#include "ops/accounts.h"
#include "ops/bound.h"
#include "ops/capture.h"
#include "ops/counters.h"
#include "ops/horizon.h"
#include "ops/host_program.h"
#include "ops/links.h"
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

std::vector<StepTime> steps_of(const std::vector<Work>& work, const Links& links) {
  std::vector<StepTime> steps;
  for (const TraceStep& step : links.steps) {
    steps.push_back({step.name, ms_of(static_cast<double>(step.end_ns - step.start_ns)), 0, 0});
  }
  for (const Work& piece : work) {
    const int32_t from = piece.step;
    if (from != kOutside) {
      steps[static_cast<size_t>(from)].kernel_ms += ms_of(static_cast<double>(piece.duration_ns()));
    }
    // Steps are in order and disjoint, and a piece is rarely longer than two of them.
    int32_t at = std::max(step_at(links, piece.start_ns), from);
    for (at = std::max(at, 0); static_cast<size_t>(at) < links.steps.size(); ++at) {
      const TraceStep& step = links.steps[static_cast<size_t>(at)];
      if (step.start_ns >= piece.end_ns) break;
      if (at == from) continue;
      const int64_t inside =
          std::min(piece.end_ns, step.end_ns) - std::max(piece.start_ns, step.start_ns);
      if (inside > 0)
        steps[static_cast<size_t>(at)].backlog_ms += ms_of(static_cast<double>(inside));
    }
  }
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
  facts.has_steps = links.has_steps;
  facts.is_partial = trace.is_cut || trace.fault_count > 0;
  for (const formats::TraceFault& fault : trace.faults) {
    facts.faults.push_back(fault.place + ": " + fault.message);
  }
  const auto shown = static_cast<int64_t>(trace.faults.size());
  if (trace.fault_count > shown) {
    facts.faults.push_back("and " + std::to_string(trace.fault_count - shown) + " more");
  }
  return facts;
}

std::string formatted_pct(double value) {
  char words[32];
  std::snprintf(words, sizeof words, "%.1f %%", value);
  return words;
}

void add_notes(const Trace& trace, const Links& links, const KernelTime& kernels,
               OpsAnswer& answer) {
  const double total = answer.kernel_time.total_ms;
  if (!links.has_steps) {
    answer.notes.emplace_back("the trace names no steps (ProfilerStep#N): all of it counts as one");
  }
  if (!links.has_device) {
    answer.notes.emplace_back(
        "no device in this trace: an operator's own time on the CPU counts as kernel time");
  }
  const bool has_calls =
      std::any_of(trace.events.begin(), trace.events.end(),
                  [](const auto& event) { return event.kind == formats::TraceEventKind::call; });
  if (!links.has_device && has_calls) {
    answer.notes.emplace_back(
        "there are calls into a device's runtime, but no kernel was recorded: add its activity");
  }
  if (trace.has_stacks) {
    answer.notes.emplace_back(
        "Python stacks were recorded, which slows the host down: idle time is less without them");
  }
  if (kernels.backlog_ns > 0) {
    answer.notes.push_back(
        "work launched before the steps still ran in them (" +
        formatted_pct(percent(ms_of(kernels.backlog_ns), answer.wall_time.total_ms)) +
        " of the wall time): it is in the wall time, not in the kernel time");
  }
  if (kernels.graph_ns > 0 && trace.captured.empty()) {
    answer.notes.push_back(formatted_pct(percent(ms_of(kernels.graph_ns), total)) +
                           " of the kernel time is in graphs, where no operator is known: sorted "
                           "by kernel name (--capture FILE, a trace of the capture, "
                           "knows them)");
  }
  constexpr double kMuchUnseenPct = 1;
  if (const double unseen = unseen_pct(answer); unseen > kMuchUnseenPct) {
    answer.notes.push_back(
        "for " + formatted_pct(unseen) +
        " of the time graphs did what the profiler did not record: no change of the horizon "
        "touches that");
  }
}

// On a CPU what an operator would take by its traffic alone was wrong by up to 600 %, since memory
// that is new has to be mapped and caches hold what is small (2026-11-21-ops-pairs): fusing is not
// predicted there, and int8 by the rates of this machine alone.
Scenarios host_changes(const Recording& recording, const RecordedRun& run,
                       const OperatorRules& rules, const device::Device* device) {
  Scenarios changes;
  changes.notes.emplace_back(
      "on a CPU operators follow one another, so that the horizon is a sum: that the run as it was "
      "comes out says nothing of how good it is; what fusing would give there is not predicted");
  if (device != nullptr && device->name == "cpu") {
    changes.all = host_scenarios(recording, run, rules, *device);
  }
  if (!changes.all.empty()) {
    changes.notes.emplace_back(
        "linear layers in int8 by the rates that were given: how well those hold for this model is "
        "not in the interval");
  } else {
    changes.notes.emplace_back(
        "linear layers in int8 are predicted by what such products reach on this machine: --device "
        "cpu,fp32=100GFLOPS,int8=300GFLOPS,bandwidth=20GB/s, for example");
  }
  return changes;
}

}  // namespace

OpsAnswer answer(const RecordedRun& run, const OperatorRules& rules, const device::Device* device,
                 const device::Device* other, const std::vector<FasterGroup>& faster) {
  const Trace& trace = run.trace;
  const Links& links = run.links;
  const std::vector<Work>& work = run.work;
  Classifier classifier(rules, trace.names);
  OpsAnswer answer;
  answer.trace = facts_of(run);
  const KernelTime kernels = kernel_time(work, links, rules.groups().size());
  const WallTime wall = wall_time(trace, work, links, rules);
  const PaperTime paper = paper_time(trace, work, links, classifier);
  answer.trace.kernels = kernels.launched;
  answer.steps = steps_of(work, links);
  answer.kernel_time = accounting_of(kernels.groups, rules);
  answer.wall_time = wall_accounting(wall, rules);
  answer.idle = {ms_of(wall.idle_ns), ms_of(wall.idle_host_ns), ms_of(wall.idle_launch_ns),
                 ms_of(wall.idle_unknown_ns)};
  answer.communication_hidden_ms = ms_of(wall.communication_hidden_ns);
  answer.backlog_ms = ms_of(kernels.backlog_ns);
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
  if (device != nullptr) answer.roofline = roofline(run, rules, *device);
  find_bound(answer);
  std::optional<Recording> recording = record(trace, links, work, rules);
  if (!recording) recording = record_host(run, wall);
  if (recording) {
    answer.replay = replay_error(*recording);
    const Scenarios asked = recording->is_host ? host_changes(*recording, run, rules, device)
                                               : scenarios(*recording, run, rules, device, other);
    answer.horizon = horizon(*recording, answer, rules, asked.all, faster);
    answer.notes = asked.notes;
    find_bound_by_replay(answer);
  } else {
    answer.notes.push_back(
        "no launches were recorded, so that what a change would give cannot be replayed" +
        std::string(faster.empty() ? "" : ", nor what --faster asks for") +
        "; record the host's calls beside the kernels");
  }
  add_notes(trace, links, kernels, answer);
  return answer;
}

Result<OpsAnswer> answer(Trace trace, const OperatorRules& rules) {
  HEADROOM_ASSIGN(const RecordedRun run, run_of(std::move(trace), rules));
  return answer(run, rules);
}

namespace {

// With the operators of the graph's capture.
Result<void> add_capture(const std::string& file, Trace& trace, std::vector<std::string>& notes) {
  HEADROOM_ASSIGN(const Trace capture, formats::read_trace(file));
  const CaptureJoin joined = join_capture(trace, capture);
  if (joined.graph_kernels == 0) {
    return Error{ErrorCode::usage, "launches no graph, so that a capture says nothing of it",
                 trace.file, "leave --capture out"};
  }
  if (joined.joined == 0) {
    return Error{ErrorCode::bad_input,
                 "is not the capture of a graph of this trace: it captures " +
                     std::to_string(joined.captured) + " kernels, the graphs have " +
                     std::to_string(joined.graph_kernels) +
                     (joined.has_names ? ", of other names" : ""),
                 file, "record the capture of the same graph with torch.profiler"};
  }
  notes.push_back("the capture names the operators of " + std::to_string(joined.joined) + " of " +
                  std::to_string(joined.graph_kernels) + " kernels in graphs, " +
                  (joined.has_names ? "by name and order" : "by their order alone"));
  if (joined.has_unsure_shapes) {
    notes.emplace_back(
        "several captures have these kernels, with operators of other shapes: which of them ran is "
        "not known, so that shapes are left out");
  }
  return {};
}

// The trace with the shapes that an execution trace of the same run has.
Result<Trace> read_joined(const OpsQuestion& question, std::vector<std::string>& notes) {
  HEADROOM_ASSIGN(Trace trace, formats::read_trace(question.file));
  if (!question.capture.empty()) HEADROOM_TRY(add_capture(question.capture, trace, notes));
  if (question.execution_trace.empty()) return trace;
  HEADROOM_ASSIGN(const formats::ExecutionTrace execution,
                  formats::read_execution_trace(question.execution_trace));
  const formats::Joined joined = formats::join(trace, execution);
  if (!formats::is_same_run(joined)) {
    return Error{ErrorCode::bad_input, "is of another run: its ids are of other operators",
                 execution.file, "record both at once (profile(execution_trace_observer=...))"};
  }
  notes.push_back("the execution trace knows " + std::to_string(joined.joined) + " of " +
                  std::to_string(joined.operators) + " operators, and gave " +
                  std::to_string(joined.shaped) + " of them their shapes");
  if (execution.is_cut || execution.fault_count > 0) {
    notes.push_back("not all of the execution trace could be read: " + execution.first_fault);
  }
  return trace;
}

Result<void> add_counters(const std::string& file, OpsAnswer& answer) {
  HEADROOM_ASSIGN(const formats::NcuProfile profile, formats::read_ncu_csv(file));
  answer.counters = counters_of(profile, answer.kernels);
  if (!answer.counters->rows.empty()) return {};
  return Error{ErrorCode::bad_input, "counts no kernel of this trace", file,
               "profile the same program with ncu --csv --page raw"};
}

}  // namespace

Result<AnsweredRun> answer_run(const OpsQuestion& question) {
  HEADROOM_ASSIGN(const OperatorRules rules, OperatorRules::load(question.rules));
  HEADROOM_ASSIGN(const device::DeviceCatalogue catalogue, device::DeviceCatalogue::load());
  std::optional<device::Device> device;
  if (!question.device.empty()) {
    HEADROOM_ASSIGN(device, catalogue.find(question.device));
  }
  std::optional<device::Device> other;
  if (!question.other_device.empty()) {
    HEADROOM_ASSIGN(other, catalogue.find(question.other_device));
  }
  HEADROOM_ASSIGN(const std::vector<FasterGroup> faster, faster_groups(question.faster, rules));
  std::vector<std::string> notes;
  HEADROOM_ASSIGN(Trace trace, read_joined(question, notes));
  HEADROOM_ASSIGN(RecordedRun run, run_of(std::move(trace), rules));
  std::string assumption;
  if (!device && run.links.has_device && !run.device().empty()) {
    if (const auto found = catalogue.find_for_measurement(run.device())) {
      device = found->device;
      assumption = found->assumption;
    }
  }
  OpsAnswer answered =
      answer(run, rules, device ? &*device : nullptr, other ? &*other : nullptr, faster);
  answered.notes.insert(answered.notes.end(), notes.begin(), notes.end());
  if (!question.counters.empty()) HEADROOM_TRY(add_counters(question.counters, answered));
  if (!assumption.empty()) answered.notes.push_back(assumption);
  if (run.links.has_device && !device) {
    answered.notes.emplace_back(
        "the limits of this device are not known, so operators are not held against them: --device "
        "NAME names one");
  }
  if (other && !device) {
    answered.notes.push_back("what the run would take on " + other->name +
                             " is not known, as the limits of the device that it ran on are not");
  }
  return AnsweredRun{std::move(answered), std::move(run)};
}

Result<OpsAnswer> answer(const OpsQuestion& question) {
  HEADROOM_ASSIGN(AnsweredRun answered, answer_run(question));
  return std::move(answered.answer);
}

}  // namespace headroom::ops
