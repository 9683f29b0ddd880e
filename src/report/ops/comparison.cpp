#include "report/ops/comparison.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "report/fit/words.h"
#include "report/ops/words.h"
#include "text/json_parts.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using text::Align;
using text::formatted;
using text::Json;
using text::Style;
using text::Table;
using text::Terminal;

constexpr size_t kMostChanges = 15;  // in a terminal; --json has all
constexpr double kShownPct = 0.05;   // of the step: a change that is worth a line

std::string_view reason_name(ops::ChangeReason reason) {
  switch (reason) {
    case ops::ChangeReason::none:
      return "none";
    case ops::ChangeReason::added:
      return "added";
    case ops::ChangeReason::removed:
      return "removed";
    case ops::ChangeReason::more_calls:
      return "more_calls";
    case ops::ChangeReason::fewer_calls:
      return "fewer_calls";
    case ops::ChangeReason::other_kernels:
      return "other_kernels";
    case ops::ChangeReason::other_shapes:
      return "other_shapes";
    case ops::ChangeReason::each_slower:
      return "each_slower";
    case ops::ChangeReason::each_faster:
      return "each_faster";
    case ops::ChangeReason::hidden_less:
      return "hidden_less";
    case ops::ChangeReason::hidden_more:
      return "hidden_more";
    case ops::ChangeReason::backlog:
      return "backlog";
    case ops::ChangeReason::host:
      return "host";
    case ops::ChangeReason::launch:
      return "launch";
    case ops::ChangeReason::unrecorded:
      return "unrecorded";
  }
  return "none";
}

constexpr const char* kDecimals[] = {"%.0f", "%.1f", "%.2f", "%.3f", "%.4f", "%.5f", "%.6f"};

// Two figures with as many decimals as tell them apart, `least` of them at least.
std::pair<std::string, std::string> told_apart(double before, double after, size_t least) {
  std::pair<std::string, std::string> both;
  for (size_t i = least; i < std::size(kDecimals); ++i) {
    both = {formatted(kDecimals[i], before), formatted(kDecimals[i], after)};
    if (both.first != both.second) break;
  }
  return both;
}

// Calls a step may have a fraction, of calls that not every step makes.
size_t decimals_of(double count) {
  constexpr double kWhole = 0.05;
  if (count > 0 && count < kWhole) return 3;
  return std::abs(count - std::round(count)) < kWhole ? 0 : 1;
}

std::string calls_words(double count) {
  const std::string figure = formatted(kDecimals[decimals_of(count)], count);
  return figure + (figure == "1" ? " call" : " calls");
}

std::string calls_became(const ops::OperatorChange& change) {
  const double before = change.before_count;
  const double after = change.after_count;
  std::string was = formatted(kDecimals[decimals_of(before)], before);
  std::string is = formatted(kDecimals[decimals_of(after)], after);
  constexpr double kSame = 1e-6;  // counts are sums of shares of steps
  if (std::abs(before - after) < kSame) return calls_words(before) + " as before";
  if (was == is) std::tie(was, is) = told_apart(before, after, 1);
  return was + (was == "1" ? " call" : " calls") + " became " + is;
}

std::string each_words(const ops::OperatorChange& change) {
  const double before = change.before_count > 0 ? change.before_kernel_ms / change.before_count : 0;
  const double after = change.after_count > 0 ? change.after_kernel_ms / change.after_count : 0;
  const auto [was, is] = told_apart(before * 1e3, after * 1e3, 1);
  return was + " us each became " + is + " us";
}

// "as long, more of it beside other work"; where the kernels' own time changed too, by how much.
std::string hidden_words(const ops::OperatorChange& change) {
  constexpr double kAlike = 0.01;  // of the kernel time
  constexpr double kTimes = 2;     // from where on percents are hard to read
  const bool is_less = change.reason == ops::ChangeReason::hidden_less;
  const std::string beside = std::string(is_less ? "less" : "more") + " of it beside other work";
  const double ratio =
      change.before_kernel_ms > 0 ? change.after_kernel_ms / change.before_kernel_ms : 1;
  if (std::abs(ratio - 1) < kAlike) return "as long, " + beside;
  const bool is_longer = ratio > 1;
  const std::string takes = ratio >= kTimes
                                ? formatted("takes %.1f times as long", ratio)
                                : formatted("takes %.0f %% ", 100 * std::abs(ratio - 1)) +
                                      (is_longer ? "longer" : "less");
  // Longer and less hidden both make a step longer; else the two go against each other.
  return takes + (is_longer == is_less ? ", and " : ", but ") + beside;
}

std::string backlog_words(const ops::OperatorChange& change) {
  const char* const amount = change.before_backlog_ms == 0 ? ""
                             : change.change_ms() > 0      ? "more "
                                                           : "less ";
  return std::string(amount) + "earlier work still running in the step";
}

}  // namespace

std::string change_reason_words(const ops::OperatorChange& change) {
  switch (change.reason) {
    case ops::ChangeReason::added:
      return "new, " + calls_words(change.after_count);
    case ops::ChangeReason::removed:
      return "gone, " + calls_words(change.before_count);
    case ops::ChangeReason::more_calls:
    case ops::ChangeReason::fewer_calls:
      return calls_became(change);
    case ops::ChangeReason::other_kernels:
      return "other kernel: " + text::elide(change.before_kernel, kLongestName) + " became " +
             text::elide(change.after_kernel, kLongestName);
    case ops::ChangeReason::other_shapes:
      return "other shapes, " + calls_became(change);
    case ops::ChangeReason::each_slower:
    case ops::ChangeReason::each_faster:
      return each_words(change);
    case ops::ChangeReason::hidden_less:
    case ops::ChangeReason::hidden_more:
      return hidden_words(change);
    case ops::ChangeReason::backlog:
      return backlog_words(change);
    case ops::ChangeReason::host:
      return change.change_ms() > 0 ? "the next launch comes later"
                                    : "the next launch comes earlier";
    case ops::ChangeReason::launch:
      return "launched, and not yet begun";
    case ops::ChangeReason::unrecorded:
      return "no launches recorded that say why";
    case ops::ChangeReason::none:
      break;
  }
  return "";
}

namespace {

std::string verdict_words(const ops::OpsComparison& comparison) {
  const std::string limit =
      comparison.max_slowdown_pct ? formatted("%.3g %%", *comparison.max_slowdown_pct) : "";
  switch (comparison.verdict) {
    case ops::Slowdown::beyond_limit:
      return ": more than the " + limit + " that is allowed";
    case ops::Slowdown::within_spread:
      return ": more than " + limit + ", but steps differ by as much; record more of them";
    case ops::Slowdown::within_limit:
      return ": within the " + limit + " that is allowed";
    case ops::Slowdown::not_asked:
      break;
  }
  return "";
}

}  // namespace

std::string comparison_words(const ops::OpsComparison& comparison) {
  const double slower = comparison.slowdown_pct;
  constexpr double kSame = 0.05;
  std::string line = "The step of the second run takes ";
  if (std::abs(slower) < kSame) {
    line += "as long as the first's";
  } else {
    line += formatted("%.1f %% ", std::abs(slower)) + (slower > 0 ? "longer" : "less");
  }
  line += " (" + milliseconds(comparison.after.step_ms) + ", was " +
          milliseconds(comparison.before.step_ms) + ")";
  return line + verdict_words(comparison);
}

std::string spread_words(const ops::OpsComparison& comparison) {
  if (!comparison.slowdown_low_pct) {
    return "one step each: how much steps differ by themselves is not known";
  }
  return "between " + formatted("%+.1f", *comparison.slowdown_low_pct) + " and " +
         formatted("%+.1f %%", *comparison.slowdown_high_pct) + " at 90 %, by " +
         std::to_string(comparison.before.steps) + " and " +
         std::to_string(comparison.after.steps) + " steps";
}

namespace {

std::string run_line(const char* which, const ops::ComparedRun& run, const Terminal& terminal) {
  constexpr std::string_view kPartial = "not all of it could be read";
  std::string line = std::string(which) + ": " + run.file;
  if (!run.device.empty()) line += ", " + run.device;
  if (!run.is_partial) return text::wrapped(line, terminal, kNoteIndent);
  return text::wrapped_marked(line + ", " + std::string(kPartial), kPartial, Style::warning,
                              terminal, kNoteIndent);
}

std::string change_figure(double ms) { return (ms < 0 ? "-" : "+") + milliseconds(std::abs(ms)); }

std::string changes_table(const ops::OpsComparison& comparison, const Terminal& terminal) {
  Table table({{"a step", Align::left, true},
               {"shapes", Align::left, true, 3},
               {"before", Align::right, false, 1},
               {"after", Align::right, false, 2},
               {"change", Align::right, false},
               {"why", Align::left, true}});
  size_t shown = 0;
  double rest_ms = 0;
  size_t rest = 0;
  for (const ops::OperatorChange& change : comparison.changes) {
    if (change.change_ms() == 0) continue;
    const double worth = kShownPct / 100 * comparison.before.step_ms;
    if (shown == kMostChanges || std::abs(change.change_ms()) < worth) {
      rest_ms += change.change_ms();
      ++rest;
      continue;
    }
    ++shown;
    const Style style = change.change_ms() > 0 ? Style::bad : Style::good;
    table.row({text::elide(text::printable(change.name), kLongestName),
               text::elide(text::printable(change.shapes), 36),
               milliseconds(change.before_ms),
               milliseconds(change.after_ms),
               {change_figure(change.change_ms()), style},
               {text::printable(change_reason_words(change)), Style::dim}});
  }
  if (rest > 0) {
    table.row({"and " + std::to_string(rest) + " more",
               "",
               "",
               "",
               change_figure(rest_ms),
               {"--json has them", Style::dim}});
  }
  double before_ms = 0;
  double after_ms = 0;
  for (const ops::OperatorChange& change : comparison.changes) {
    before_ms += change.before_ms;
    after_ms += change.after_ms;
  }
  table.row({{"all, and what is unchanged", Style::bold},
             "",
             {milliseconds(before_ms), Style::bold},
             {milliseconds(after_ms), Style::bold},
             {change_figure(after_ms - before_ms), Style::bold}});
  return table.render(terminal);
}

std::string groups_table(const ops::OpsComparison& comparison, const Terminal& terminal) {
  Table table({{"wall time of a step", Align::left, true},
               {"before", Align::right, false},
               {"after", Align::right, false},
               {"change", Align::right, false}});
  for (const ops::GroupChange& group : comparison.groups) {
    const double worth = kShownPct / 100 * comparison.before.step_ms;
    if (std::abs(group.after_ms - group.before_ms) < worth) continue;
    table.row({group.title, milliseconds(group.before_ms), milliseconds(group.after_ms),
               change_figure(group.after_ms - group.before_ms)});
  }
  return table.render(terminal);
}

Json run_json(const ops::ComparedRun& run) {
  return Json::object()
      .set("file", run.file)
      .set("device", run.device)
      .set("rank", run.rank < 0 ? Json(nullptr) : Json(run.rank))
      .set("steps", static_cast<int64_t>(run.steps))
      .set("step_ms", run.step_ms)
      .set("spread_ms", run.spread_ms ? Json(*run.spread_ms) : Json(nullptr))
      .set("is_partial", run.is_partial);
}

Json changes_json(const std::vector<ops::OperatorChange>& changes) {
  Json list = Json::array();
  for (const ops::OperatorChange& change : changes) {
    list.push_back(Json::object()
                       .set("name", change.name)
                       .set("shapes", change.shapes)
                       .set("group", change.group)
                       .set("reason", std::string(reason_name(change.reason)))
                       .set("change_ms", change.change_ms())
                       .set("before_ms", change.before_ms)
                       .set("after_ms", change.after_ms)
                       .set("before_kernel_ms", change.before_kernel_ms)
                       .set("after_kernel_ms", change.after_kernel_ms)
                       .set("before_count", change.before_count)
                       .set("after_count", change.after_count)
                       .set("before_backlog_ms", change.before_backlog_ms)
                       .set("after_backlog_ms", change.after_backlog_ms)
                       .set("before_kernel", change.before_kernel)
                       .set("after_kernel", change.after_kernel));
  }
  return list;
}

std::string_view verdict_name(ops::Slowdown verdict) {
  switch (verdict) {
    case ops::Slowdown::within_limit:
      return "within_limit";
    case ops::Slowdown::beyond_limit:
      return "beyond_limit";
    case ops::Slowdown::within_spread:
      return "within_spread";
    case ops::Slowdown::not_asked:
      break;
  }
  return "not_asked";
}

Json figure(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

std::string ops_comparison_text(const ops::OpsComparison& comparison, const Terminal& terminal) {
  const Style style = comparison.verdict == ops::Slowdown::beyond_limit ? Style::bad : Style::bold;
  std::string lines = text::wrapped(comparison_words(comparison), terminal, 0, style);
  lines += text::wrapped(spread_words(comparison), terminal);
  lines += run_line("first", comparison.before, terminal);
  lines += run_line("second", comparison.after, terminal);
  lines += "\n" + changes_table(comparison, terminal);
  lines += "\n" + groups_table(comparison, terminal);
  for (const std::string& note : comparison.notes) {
    lines += text::wrapped("note: " + note, terminal, kNoteIndent);
  }
  return lines;
}

Json ops_comparison_json(const ops::OpsComparison& comparison) {
  Json groups = Json::array();
  for (const ops::GroupChange& group : comparison.groups) {
    groups.push_back(Json::object()
                         .set("name", group.name)
                         .set("before_ms", group.before_ms)
                         .set("after_ms", group.after_ms));
  }
  return Json::object()
      .set("schema", "headroom.ops_comparison/1")
      .set("provenance", "measured")
      .set("before", run_json(comparison.before))
      .set("after", run_json(comparison.after))
      .set("slowdown_pct", comparison.slowdown_pct)
      .set("slowdown_low_pct", figure(comparison.slowdown_low_pct))
      .set("slowdown_high_pct", figure(comparison.slowdown_high_pct))
      .set("max_slowdown_pct", figure(comparison.max_slowdown_pct))
      .set("verdict", std::string(verdict_name(comparison.verdict)))
      .set("changes", changes_json(comparison.changes))
      .set("groups", std::move(groups))
      .set("notes", text::json_array(comparison.notes));
}

}  // namespace headroom::report
