#include "ops/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "ops/accounts.h"

namespace headroom::ops {
namespace {

using formats::kNone;
using formats::TraceEvent;

double ms_of(double ns) { return ns / 1e6; }

// What one run spent on an operator with its shapes, a step.
struct Spent {
  // By group: the kernel time, and for where there is none of it, the wall time.
  std::map<GroupIndex, std::pair<double, double>> groups;
  double exposed_ms = 0;
  double backlog_ms = 0;  // of it: launched before the steps
  double kernel_ms = 0;
  double count = 0;
  std::map<std::string_view, double> kernels;  // names live as long as the trace

  [[nodiscard]] std::string_view main_kernel() const {
    const auto most = std::max_element(kernels.begin(), kernels.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    return most == kernels.end() ? std::string_view() : most->first;
  }
  [[nodiscard]] std::optional<GroupIndex> main_group() const {
    const auto most = std::max_element(groups.begin(), groups.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    return most == groups.end() ? std::nullopt : std::optional(most->first);
  }
  void add_group(GroupIndex group, double in_kernels_ms, double on_wall_ms) {
    auto& [in_kernels, on_wall] = groups[group];
    in_kernels += in_kernels_ms;
    on_wall += on_wall_ms;
  }
  void add(const Spent& other) {
    for (const auto& [group, ms] : other.groups) add_group(group, ms.first, ms.second);
    exposed_ms += other.exposed_ms;
    backlog_ms += other.backlog_ms;
    kernel_ms += other.kernel_ms;
    count += other.count;
    for (const auto& [name, ms] : other.kernels) kernels[name] += ms;
  }
};

using RowKey = std::pair<std::string_view, std::string_view>;  // name and shapes
using Rows = std::map<RowKey, Spent>;

Rows rows_of(const RecordedRun& run, const WallTime& wall) {
  Rows rows;
  const double share = 1 / static_cast<double>(run.links.steps.size());
  std::vector<bool> is_counted(run.trace.events.size());  // an event belongs to one row
  for (size_t i = 0; i < run.work.size(); ++i) {
    const Work& piece = run.work[i];
    const bool is_inside = piece.step != kOutside;
    if (!is_inside && wall.exposed_ns[i] <= 0) continue;
    const bool is_linked = piece.own_operation() != kNone;
    const uint32_t event = is_linked ? piece.own_operation() : piece.event;
    const std::string_view name = run.trace.name_of(run.trace.events[event]);
    Spent& spent = rows[{name, is_linked ? shapes_of(run.trace, event) : std::string_view()}];
    const double exposed_ms = ms_of(wall.exposed_ns[i]) * share;
    const double kernel_ms =
        is_inside ? ms_of(static_cast<double>(piece.duration_ns())) * share : 0;
    spent.add_group(piece.group, kernel_ms, exposed_ms);
    spent.exposed_ms += exposed_ms;
    if (!is_inside) {
      spent.backlog_ms += exposed_ms;
      continue;
    }
    spent.kernel_ms += kernel_ms;
    spent.count += is_counted[event] ? 0 : share;
    is_counted[event] = true;
    spent.kernels[run.trace.name_of(run.trace.events[piece.event])] += kernel_ms;
  }
  return rows;
}

// No operator's shapes: the row that shapes of one run alone are merged into.
constexpr std::string_view kOtherShapes = "*";

// The rows that only one of two runs has, by name.
std::set<std::string_view> names_only_in(const Rows& rows, const Rows& others) {
  std::set<std::string_view> names;
  for (const auto& [key, spent] : rows) {
    if (!key.second.empty() && !others.contains(key)) names.insert(key.first);
  }
  return names;
}

Rows merged(const Rows& rows, const Rows& others, const std::set<std::string_view>& unlike) {
  Rows result;
  for (const auto& [key, spent] : rows) {
    const bool is_merged =
        !key.second.empty() && unlike.contains(key.first) && !others.contains(key);
    result[is_merged ? RowKey{key.first, kOtherShapes} : key].add(spent);
  }
  return result;
}

// An operator of which either run has shapes that the other has not was called with others: what
// they do not share is one row.
void merge_unlike_shapes(Rows& before, Rows& after) {
  std::set<std::string_view> unlike = names_only_in(before, after);
  const std::set<std::string_view> only_after = names_only_in(after, before);
  std::erase_if(unlike, [&](std::string_view name) { return !only_after.contains(name); });
  Rows merged_before = merged(before, after, unlike);
  after = merged(after, before, unlike);
  before = std::move(merged_before);
}

ChangeReason reason_of(const Spent& before, const Spent& after, bool are_shapes_other) {
  constexpr double kMostOf = 0.5;      // of a change explains it
  constexpr double kNothingMs = 1e-9;  // less is left by rounding
  const double whole_change = after.exposed_ms - before.exposed_ms;
  const double backlog_change = after.backlog_ms - before.backlog_ms;
  if (before.count == 0 && after.count == 0) {
    return std::abs(whole_change) < kNothingMs ? ChangeReason::none : ChangeReason::backlog;
  }
  if (std::abs(whole_change) >= kNothingMs && backlog_change / whole_change >= kMostOf) {
    return ChangeReason::backlog;
  }
  // Of what the steps launched themselves.
  const double change = whole_change - backlog_change;
  if (before.count == 0) return ChangeReason::added;
  if (after.count == 0) return ChangeReason::removed;
  if (std::abs(change) < kNothingMs) return ChangeReason::none;
  const double kernel_change = after.kernel_ms - before.kernel_ms;
  // Less than most of it, or the other way: then it is the work beside it that changed.
  if (kernel_change / change < kMostOf) {
    return change > 0 ? ChangeReason::hidden_less : ChangeReason::hidden_more;
  }
  if (are_shapes_other) return ChangeReason::other_shapes;
  const double calls = after.count - before.count;
  const double by_calls = calls * before.kernel_ms / before.count;
  if (by_calls / kernel_change >= kMostOf) {
    return calls > 0 ? ChangeReason::more_calls : ChangeReason::fewer_calls;
  }
  if (before.main_kernel() != after.main_kernel()) return ChangeReason::other_kernels;
  return change > 0 ? ChangeReason::each_slower : ChangeReason::each_faster;
}

OperatorChange change_of(const RowKey& key, const Spent& before, const Spent& after,
                         const OperatorRules& rules) {
  const bool are_shapes_other = key.second == kOtherShapes;
  OperatorChange change;
  change.name = key.first;
  change.shapes = are_shapes_other ? std::string_view() : key.second;
  const std::optional<GroupIndex> group =
      after.groups.empty() ? before.main_group() : after.main_group();
  if (group) change.group = rules.groups()[*group].name;
  change.reason = reason_of(before, after, are_shapes_other);
  change.before_ms = before.exposed_ms;
  change.after_ms = after.exposed_ms;
  change.before_kernel_ms = before.kernel_ms;
  change.after_kernel_ms = after.kernel_ms;
  change.before_count = before.count;
  change.after_count = after.count;
  change.before_backlog_ms = before.backlog_ms;
  change.after_backlog_ms = after.backlog_ms;
  change.before_kernel = before.main_kernel();
  change.after_kernel = after.main_kernel();
  return change;
}

OperatorChange idle_change(const char* name, ChangeReason reason, double before, double after) {
  OperatorChange change;
  change.name = name;
  change.group = "idle";
  change.reason = reason;
  change.before_ms = before;
  change.after_ms = after;
  return change;
}

ComparedRun facts_of(const RecordedRun& run) {
  ComparedRun facts;
  facts.file = run.trace.file;
  facts.device = run.device();
  facts.rank = run.trace.rank;
  facts.is_partial = run.trace.is_cut || run.trace.fault_count > 0;
  facts.steps = run.links.steps.size();
  const auto count = static_cast<double>(facts.steps);
  double sum = 0;
  for (size_t i = 0; i < facts.steps; ++i) sum += ms_of(static_cast<double>(run.links.step_ns(i)));
  facts.step_ms = sum / count;
  if (facts.steps < 2) return facts;
  double squares = 0;
  for (size_t i = 0; i < facts.steps; ++i) {
    const double other = ms_of(static_cast<double>(run.links.step_ns(i))) - facts.step_ms;
    squares += other * other;
  }
  facts.spread_ms = std::sqrt(squares / (count - 1));
  return facts;
}

// 95 % quantiles of Student's distribution by degrees of freedom, from 1; then the normal one's.
double student(double freedom) {
  constexpr std::array kQuantiles{6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860,
                                  1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
                                  1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711,
                                  1.708, 1.706, 1.703, 1.701, 1.699, 1.697};
  const auto at = static_cast<size_t>(std::clamp(freedom, 1.0, 1e6)) - 1;
  return at < kQuantiles.size() ? kQuantiles[at] : 1.645;
}

// What the mean step is known to: the variance of its logarithm, and of how many steps.
struct MeanOfSteps {
  double variance = 0;
  double freedom = 0;
};

// By the delta method: the variance of the mean over its square. A run of one step is taken to
// spread by as large a share as the other does.
MeanOfSteps mean_of(const ComparedRun& run, const ComparedRun& other) {
  const ComparedRun& spread = run.spread_ms ? run : other;
  const double share = *spread.spread_ms / spread.step_ms;
  const auto steps = static_cast<double>(run.steps);
  return {share * share / steps, std::max(steps - 1, 0.0)};
}

// The degrees of freedom of a sum of two variances (Welch, Biometrika 34, 1947; Satterthwaite,
// Biometrics 2, 1946).
double freedom_of(const MeanOfSteps& a, const MeanOfSteps& b) {
  const double sum = a.variance + b.variance;
  if (a.freedom == 0 || b.freedom == 0 || sum == 0) return a.freedom + b.freedom;
  return sum * sum / (a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom);
}

// The ratio of the two means with its interval on the logarithmic scale: neither mean is taken as
// exact. Means of 100 and 120 ms, each known to 2 % (9 steps of a spread of 6 %): 0.0283 in the
// logarithm, with 16 degrees of freedom times 1.746, so +14.2 to +26.1 %.
void judge(OpsComparison& comparison) {
  const ComparedRun& before = comparison.before;
  const ComparedRun& after = comparison.after;
  if (before.step_ms <= 0) return;
  const double ratio = after.step_ms / before.step_ms;
  comparison.slowdown_pct = 100 * (ratio - 1);
  double low = comparison.slowdown_pct;
  if ((before.spread_ms || after.spread_ms) && after.step_ms > 0) {
    const MeanOfSteps a = mean_of(before, after);
    const MeanOfSteps b = mean_of(after, before);
    const double margin = std::exp(student(freedom_of(a, b)) * std::sqrt(a.variance + b.variance));
    comparison.slowdown_low_pct = 100 * (ratio / margin - 1);
    comparison.slowdown_high_pct = 100 * (ratio * margin - 1);
    low = *comparison.slowdown_low_pct;
  }
  if (!comparison.max_slowdown_pct) return;
  const double most = *comparison.max_slowdown_pct;
  comparison.verdict = comparison.slowdown_pct <= most ? Slowdown::within_limit
                       : low > most                    ? Slowdown::beyond_limit
                                                       : Slowdown::within_spread;
}

void compare_groups(const RecordedRun& before, const WallTime& was, const RecordedRun& after,
                    const WallTime& is, const OperatorRules& rules, OpsComparison& comparison) {
  const auto a = static_cast<double>(before.links.steps.size());
  const auto b = static_cast<double>(after.links.steps.size());
  for (size_t i = 0; i < rules.groups().size(); ++i) {
    const OperatorGroup& group = rules.groups()[i];
    if (was.groups[i] == 0 && is.groups[i] == 0) continue;
    comparison.groups.push_back(
        {group.name, group.title, ms_of(was.groups[i]) / a, ms_of(is.groups[i]) / b});
  }
  comparison.groups.push_back({"idle", "idle", ms_of(was.idle_ns) / a, ms_of(is.idle_ns) / b});
  std::stable_sort(comparison.groups.begin(), comparison.groups.end(),
                   [](const GroupChange& x, const GroupChange& y) {
                     return std::abs(x.after_ms - x.before_ms) > std::abs(y.after_ms - y.before_ms);
                   });
}

void add_notes(const RecordedRun& before, const RecordedRun& after, OpsComparison& comparison) {
  if (comparison.before.device != comparison.after.device) {
    comparison.notes.emplace_back("the devices differ");
  }
  if (before.trace.has_stacks != after.trace.has_stacks) {
    comparison.notes.emplace_back(
        "only one of the two recorded Python stacks, which slows the host down");
  }
  if (!before.links.has_steps || !after.links.has_steps) {
    comparison.notes.emplace_back(
        "a trace without named steps (ProfilerStep#N) counts as one step, whatever it holds");
  }
}

}  // namespace

OpsComparison compare(const RecordedRun& before, const RecordedRun& after,
                      const OperatorRules& rules, std::optional<double> max_slowdown_pct) {
  OpsComparison comparison;
  comparison.before = facts_of(before);
  comparison.after = facts_of(after);
  comparison.max_slowdown_pct = max_slowdown_pct;
  judge(comparison);
  const WallTime was = wall_time(before.trace, before.work, before.links, rules);
  const WallTime is = wall_time(after.trace, after.work, after.links, rules);
  Rows rows_before = rows_of(before, was);
  Rows rows_after = rows_of(after, is);
  merge_unlike_shapes(rows_before, rows_after);
  const Spent nothing;
  for (const auto& [key, spent] : rows_before) {
    const auto other = rows_after.find(key);
    comparison.changes.push_back(
        change_of(key, spent, other == rows_after.end() ? nothing : other->second, rules));
  }
  for (const auto& [key, spent] : rows_after) {
    if (rows_before.contains(key)) continue;
    comparison.changes.push_back(change_of(key, nothing, spent, rules));
  }
  const auto a = static_cast<double>(before.links.steps.size());
  const auto b = static_cast<double>(after.links.steps.size());
  comparison.changes.push_back(idle_change("waiting for the host", ChangeReason::host,
                                           ms_of(was.idle_host_ns) / a,
                                           ms_of(is.idle_host_ns) / b));
  comparison.changes.push_back(idle_change("waiting for launches", ChangeReason::launch,
                                           ms_of(was.idle_launch_ns) / a,
                                           ms_of(is.idle_launch_ns) / b));
  comparison.changes.push_back(idle_change("idle between kernels or operators",
                                           ChangeReason::unrecorded, ms_of(was.idle_unknown_ns) / a,
                                           ms_of(is.idle_unknown_ns) / b));
  std::stable_sort(comparison.changes.begin(), comparison.changes.end(),
                   [](const OperatorChange& x, const OperatorChange& y) {
                     return std::abs(x.change_ms()) > std::abs(y.change_ms());
                   });
  compare_groups(before, was, after, is, rules, comparison);
  add_notes(before, after, comparison);
  return comparison;
}

}  // namespace headroom::ops
