#include "ops/accounts.h"

#include <algorithm>
#include <unordered_map>

namespace headroom::ops {
namespace {

using formats::kNone;
using formats::Trace;
using formats::TraceEvent;
using formats::TraceEventKind;

// Where a piece of work begins or ends, in the time of the steps that has passed.
struct Boundary {
  int64_t time = 0;
  uint32_t piece = 0;
  bool is_start = false;
};

std::vector<Boundary> boundaries_of(const std::vector<Work>& work, const Links& links) {
  std::vector<Boundary> boundaries;
  for (uint32_t i = 0; i < work.size(); ++i) {
    const int64_t start = links.passed_ns(work[i].start_ns);
    const int64_t end = links.passed_ns(work[i].end_ns);
    if (start >= end) continue;
    boundaries.push_back({start, i, true});
    boundaries.push_back({end, i, false});
  }
  std::sort(boundaries.begin(), boundaries.end(), [](const Boundary& a, const Boundary& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.is_start != b.is_start) return !a.is_start;
    return a.piece < b.piece;
  });
  return boundaries;
}

// Goes from boundary to boundary and gives each stretch to what runs in it.
class WallSweep {
 public:
  WallSweep(const Trace& trace, const std::vector<Work>& work, const Links& links,
            const OperatorRules& rules)
      : trace_(trace),
        work_(work),
        links_(links),
        communication_(rules.group("communication")),
        running_(rules.groups().size(), 0) {
    wall_.groups.assign(rules.groups().size(), 0.0);
    wall_.exposed_ns.assign(work.size(), 0.0);
  }

  WallTime sweep() {
    const int64_t whole = links_.passed_ns(links_.end_ns());
    int64_t now = 0;
    for (const Boundary& boundary : boundaries_of(work_, links_)) {
      give(boundary.time - now, boundary.is_start ? boundary.piece : kNone, now);
      now = boundary.time;
      const GroupIndex group = work_[boundary.piece].group;
      const double given = group == communication_ ? given_alone_ : given_computing_;
      wall_.exposed_ns[boundary.piece] += boundary.is_start ? -given : given;
      const int change = boundary.is_start ? 1 : -1;
      running_[group] += change;
      (group == communication_ ? communicating_ : computing_) += change;
    }
    give(whole - now, kNone, now);
    wall_.total_ns = static_cast<double>(whole);
    return std::move(wall_);
  }

 private:
  // `next`: the work that ends the stretch by beginning, if that is what ends it.
  void give(int64_t stretch, uint32_t next, int64_t from) {
    if (stretch <= 0) return;
    const auto length = static_cast<double>(stretch);
    if (computing_ > 0) {
      given_computing_ += length / computing_;
      for (size_t group = 0; group < running_.size(); ++group) {
        if (running_[group] == 0 || group == communication_) continue;
        wall_.groups[group] += length * running_[group] / computing_;
      }
      if (communicating_ > 0) wall_.communication_hidden_ns += length;
    } else if (communicating_ > 0) {
      given_alone_ += length / communicating_;
      wall_.groups[communication_] += length;
    } else {
      idle(length, next, from);
    }
  }

  // Whose it was is not known where the call of the next work was not recorded.
  void idle(double length, uint32_t next, int64_t from) {
    wall_.idle_ns += length;
    double called = length;  // by nothing until the end, or not yet
    const uint32_t call = next == kNone ? kNone : links_.launch[work_[next].event];
    if (next == kNone ? !links_.has_calls : call == kNone) {
      wall_.idle_unknown_ns += length;
      return;
    }
    if (next != kNone) {
      const int64_t launched = links_.passed_ns(trace_.events[call].end_ns());
      called = static_cast<double>(launched - from);
    }
    const IdleParts parts = idle_parts(length, called);
    wall_.idle_host_ns += parts.host_ns;
    wall_.idle_launch_ns += parts.launch_ns;
    wall_.idle_unknown_ns += parts.unknown_ns;
  }

  const Trace& trace_;
  const std::vector<Work>& work_;
  const Links& links_;
  size_t communication_;
  std::vector<int32_t> running_;
  int32_t computing_ = 0;
  int32_t communicating_ = 0;
  double given_computing_ = 0;  // so far, to each piece that computes all the time
  double given_alone_ = 0;      // the same of communication that nothing hides
  WallTime wall_;
};

// The outermost operator at or around `event`, or kNone.
uint32_t outermost_operator(const Trace& trace, const Links& links, uint32_t event) {
  uint32_t found = kNone;
  for (uint32_t at = event; at != kNone; at = links.parent[at]) {
    if (trace.events[at].kind == TraceEventKind::host_operator) found = at;
  }
  return found;
}

}  // namespace

IdleParts idle_parts(double length_ns, double called_ns) {
  const double host = std::clamp(called_ns, 0.0, length_ns);
  const double behind = length_ns - host;
  const bool is_launch = behind <= kMostLaunchNs;
  return {host, is_launch ? behind : 0, is_launch ? 0 : behind};
}

KernelTime kernel_time(const Trace& trace, const std::vector<Work>& work, const Links& links,
                       size_t groups) {
  KernelTime time;
  time.groups.assign(groups, 0.0);
  for (const Work& piece : work) {
    if (const uint32_t call = links.launch[piece.event]; call != kNone) {
      ++time.from_calls;
      time.too_early += piece.start_ns < trace.events[call].start_ns ? 1 : 0;
    }
    const auto length = static_cast<double>(piece.duration_ns());
    if (piece.step == kOutside) {
      const int64_t inside =
          std::min(piece.end_ns, links.end_ns()) - std::max(piece.start_ns, links.start_ns());
      if (inside > 0) time.backlog_ns += static_cast<double>(inside);
      continue;
    }
    ++time.launched;
    time.overrun_ns = std::max(time.overrun_ns, static_cast<double>(piece.end_ns - links.end_ns()));
    time.groups[piece.group] += length;
    if (piece.is_in_graph) time.graph_ns += length;
    if (piece.own_operation() == kNone) {
      time.unlinked_ns += length;
      continue;
    }
    time.linked_ns += length;
    if (piece.group == piece.name_group) time.name_agrees_ns += length;
  }
  return time;
}

WallTime wall_time(const Trace& trace, const std::vector<Work>& work, const Links& links,
                   const OperatorRules& rules) {
  return WallSweep(trace, work, links, rules).sweep();
}

PaperTime paper_time(const Trace& trace, const std::vector<Work>& work, const Links& links,
                     Classifier& classifier) {
  const size_t groups = classifier.rules().groups().size();
  PaperTime time;
  time.groups.assign(groups, 0.0);
  time.paper_groups.assign(classifier.rules().paper_groups().size(), 0.0);
  struct Top {
    double device_ns = 0;
    std::vector<std::pair<GroupIndex, double>> kernels;
  };
  std::unordered_map<uint32_t, Top> tops;
  for (const Work& piece : work) {
    if (piece.operation == kNone) continue;
    Top& top = tops[outermost_operator(trace, links, piece.operation)];
    if (links.has_device) top.device_ns += static_cast<double>(piece.duration_ns());
    top.kernels.emplace_back(piece.group, static_cast<double>(piece.duration_ns()));
  }
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind != TraceEventKind::host_operator) continue;
    if (step_at(links, event.start_ns) == kOutside) continue;
    if (links.parent[i] != kNone && outermost_operator(trace, links, links.parent[i]) != kNone) {
      continue;
    }
    const auto top = tops.find(i);
    const double device = top == tops.end() ? 0.0 : top->second.device_ns;
    const double both = static_cast<double>(event.duration_ns) + device;
    GroupIndex group = classifier.on_host({event.name});
    if (classifier.is_wrapper(group, event.name) && top != tops.end()) {
      // What wraps many operators counts where most of the work below it does.
      GroupTimes inside(groups, 0.0);
      for (const auto& [kernel_group, length] : top->second.kernels) inside[kernel_group] += length;
      group =
          static_cast<GroupIndex>(std::max_element(inside.begin(), inside.end()) - inside.begin());
    }
    time.groups[group] += both;
    time.paper_groups[classifier.paper_group_of(event.name)] += both;
    time.total_ns += both;
  }
  return time;
}

}  // namespace headroom::ops
