#include "ops/horizon.h"

#include <algorithm>
#include <cmath>

#include "text/number.h"

namespace headroom::ops {
namespace {

using timing::Program;
using timing::ReplayChange;
using timing::simulate;

constexpr size_t kNonGemmGroups = 4;  // the largest of them get a line of their own

double kernel_ms(const OpsAnswer& answer, std::string_view name) {
  for (const GroupShare& group : answer.kernel_time.groups) {
    if (group.name == name) return group.ms;
  }
  return 0;
}

// The same program with all latencies scaled: how much the answer hangs on them.
Program with_latencies(const Program& program, double factor) {
  Program scaled = program;
  for (timing::Latencies& latencies : scaled.latencies) {
    for (double* value : {&latencies.launch, &latencies.graph_launch, &latencies.gap,
                          &latencies.graph_gap, &latencies.wake, &latencies.wait_cost}) {
      *value *= factor;
    }
  }
  return scaled;
}

class Horizon {
 public:
  Horizon(const Recording& recording, const OpsAnswer& answer, const OperatorRules& rules)
      : answer_(answer),
        rules_(rules),
        programs_{recording.program, with_latencies(recording.program, 0.5),
                  with_latencies(recording.program, 2.0)},
        error_(std::abs(replay_error(recording).error_pct) / 100),
        is_host_(recording.is_host) {
    for (size_t i = 0; i < 3; ++i) unchanged_[i] = simulate(programs_[i]).total_ns;
  }

  std::vector<HorizonChange> all(const std::vector<Scenario>& changes,
                                 const std::vector<FasterGroup>& faster) {
    if (!faster.empty()) add_asked(faster);
    for (const Scenario& one : changes) {
      add(one.change, one.title, one.made, amdahl(one.saved_ms, 0), one.spanned);
    }
    add_group("gemm", "GEMM");
    add_group("attention", "attention");
    add_largest_groups();
    add_non_gemm();
    if (kernel_ms(answer_, "communication") > 0) {
      ReplayChange hidden;
      hidden.hides_communication = true;
      const double communication = kernel_ms(answer_, "communication");
      add("communication_hidden", "communication hidden", hidden, amdahl(communication, 0));
    }
    if (!is_host_) add_launching();
    std::stable_sort(changes_.begin(), changes_.end(),
                     [](const auto& a, const auto& b) { return a.speedup > b.speedup; });
    return std::move(changes_);
  }

 private:
  // What there is between a host and its device.
  void add_launching() {
    ReplayChange host;
    host.host_factor = 0.5;
    add("host_2x", "host twice as fast", host, 1.0);
    ReplayChange graph;
    graph.in_graph = true;
    add("cuda_graph", "launches in a graph", graph, 1.0);
  }

  // What the law says of `ms` of the kernel time taking `factor` of it.
  [[nodiscard]] double amdahl(double ms, double factor) const {
    const double total = answer_.kernel_time.total_ms;
    const double left = total - ms * (1 - factor);
    return left > 0 ? total / left : 0;
  }

  [[nodiscard]] ReplayChange faster(const std::vector<size_t>& groups, double factor) const {
    ReplayChange change;
    change.group_factors.assign(rules_.groups().size(), 1.0);
    for (const size_t group : groups) change.group_factors[group] = factor;
    return change;
  }

  void add_factors(const std::string& name, const std::string& title,
                   const std::vector<size_t>& groups, double ms) {
    if (ms <= 0) return;
    add(name + "_2x", title + " 2x faster", faster(groups, 0.5), amdahl(ms, 0.5));
    add(name + "_instant", title + " in no time", faster(groups, 0.0), amdahl(ms, 0.0));
  }

  void add_group(const std::string& name, const std::string& title) {
    add_factors(name, title, {rules_.group(name)}, kernel_ms(answer_, name));
  }

  static bool is_non_gemm(const std::string& name) {
    return name != "gemm" && name != "attention" && name != "communication" &&
           name != "unclassified";
  }

  void add_largest_groups() {
    std::vector<GroupShare> groups = answer_.kernel_time.groups;
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.ms > b.ms; });
    size_t added = 0;
    for (const GroupShare& group : groups) {
      if (!is_non_gemm(group.name) || group.ms <= 0 || added == kNonGemmGroups) continue;
      add_factors(group.name, group.title, {rules_.group(group.name)}, group.ms);
      ++added;
    }
  }

  void add_non_gemm() {
    std::vector<size_t> groups;
    double ms = 0;
    for (const GroupShare& group : answer_.kernel_time.groups) {
      if (!is_non_gemm(group.name)) continue;
      groups.push_back(rules_.group(group.name));
      ms += group.ms;
    }
    add_factors("non_gemm", "all non-GEMM operators", groups, ms);
  }

  // All of them at once; a group of its own counts before non_gemm, which holds it too.
  void add_asked(const std::vector<FasterGroup>& faster) {
    std::string name = "faster";
    std::string title;
    std::vector<double> factors(rules_.groups().size(), 1.0);
    for (const FasterGroup& one : faster) {
      name += (title.empty() ? ":" : ",") + one.name + text::formatted("=%g", one.factor);
      title += (title.empty() ? "" : ", ") + one.title + text::formatted(" %gx", one.factor);
    }
    for (const GroupShare& group : answer_.kernel_time.groups) {
      factors[group_index(group.name)] = 1 / asked_factor(faster, group.name);
    }
    double left_ms = answer_.kernel_time.total_ms;
    for (const GroupShare& group : answer_.kernel_time.groups) {
      left_ms -= group.ms * (1 - factors[group_index(group.name)]);
    }
    ReplayChange change;
    change.group_factors = std::move(factors);
    add(name, title + " faster", change, left_ms > 0 ? answer_.kernel_time.total_ms / left_ms : 0);
  }

  static double asked_factor(const std::vector<FasterGroup>& faster, const std::string& group) {
    double of_all = 1;
    for (const FasterGroup& one : faster) {
      if (one.name == group) return one.factor;
      if (one.name == "non_gemm" && is_non_gemm(group)) of_all = one.factor;
    }
    return of_all;
  }

  [[nodiscard]] size_t group_index(const std::string& name) const {
    for (size_t i = 0; i < rules_.groups().size(); ++i) {
      if (rules_.groups()[i].name == name) return i;
    }
    return rules_.unclassified();
  }

  void add(const std::string& name, const std::string& title, const ReplayChange& change,
           double amdahl_speedup, const std::vector<ReplayChange>& spanned = {}) {
    HorizonChange made;
    made.change = name;
    made.title = title;
    made.amdahl_speedup = amdahl_speedup;
    double low = INFINITY;
    double high = 0;
    const auto speedup_of = [&](size_t i, const ReplayChange& one) {
      const double total = simulate(programs_[i], one).total_ns;
      const double speedup = total > 0 ? unchanged_[i] / total : 0;
      low = std::min(low, speedup);
      high = std::max(high, speedup);
      return speedup;
    };
    for (size_t i = 0; i < 3; ++i) {
      const double speedup = speedup_of(i, change);
      if (i == 0) made.speedup = speedup;
      for (const ReplayChange& one : spanned) speedup_of(i, one);
    }
    made.speedup_low = low / (1 + error_);
    made.speedup_high = high * (1 + error_);
    changes_.push_back(std::move(made));
  }

  const OpsAnswer& answer_;
  const OperatorRules& rules_;
  Program programs_[3];
  double unchanged_[3] = {};
  double error_;
  bool is_host_;
  std::vector<HorizonChange> changes_;
};

}  // namespace

ReplayError replay_error(const Recording& recording) {
  ReplayError error;
  const double replayed = simulate(recording.program).total_ns;
  error.measured_ms = recording.measured_ns / 1e6;
  error.replayed_ms = replayed / 1e6;
  error.unseen_ms = recording.unseen_ns / 1e6;
  // What stays as it was is right by construction: the error is of the rest.
  const double seen = recording.measured_ns - recording.unseen_ns;
  // Stretches on several streams may add up to more than the run.
  const double explained = seen > 0 ? seen : recording.measured_ns;
  error.error_pct = explained > 0 ? 100 * (replayed - recording.measured_ns) / explained : 0;
  return error;
}

std::vector<HorizonChange> horizon(const Recording& recording, const OpsAnswer& answer,
                                   const OperatorRules& rules, const std::vector<Scenario>& changes,
                                   const std::vector<FasterGroup>& faster) {
  return Horizon(recording, answer, rules).all(changes, faster);
}
}  // namespace headroom::ops
