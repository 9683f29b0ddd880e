#include "report/ops/comparison_html.h"

#include <algorithm>
#include <cmath>

#include "report/ops/bars.h"
#include "report/ops/comparison.h"
#include "report/ops/words.h"
#include "text/number.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using ops::OperatorChange;
using ops::OpsComparison;
using text::formatted;

constexpr size_t kMostRows = 20;  // the rest is in --json

std::string signed_ms(double ms) { return (ms < 0 ? "-" : "+") + milliseconds(std::abs(ms)); }

std::string_view tone_of(const OpsComparison& comparison) {
  if (comparison.verdict == ops::Slowdown::beyond_limit) return "no";
  const bool is_partial = comparison.before.is_partial || comparison.after.is_partial;
  return is_partial || comparison.verdict == ops::Slowdown::within_spread ? "at_risk" : "yes";
}

void run_tile(Html& html, std::string_view name, const ops::ComparedRun& run) {
  const std::string spread =
      run.spread_ms ? ", they differ by " + milliseconds(*run.spread_ms) : std::string();
  tile(html, name, milliseconds(run.step_ms),
       "a step, mean of " + std::to_string(run.steps) + spread);
}

// One, where both ran on the same.
std::vector<std::string> device_chips(const OpsComparison& comparison) {
  const std::string& before = comparison.before.device;
  const std::string& after = comparison.after.device;
  if (before == after) return after.empty() ? std::vector<std::string>{} : std::vector{after};
  const auto named = [](const std::string& device) {
    return device.empty() ? std::string("not named") : device;
  };
  return {"before: " + named(before), "after: " + named(after)};
}

Section answer_section(const OpsComparison& comparison) {
  Html html;
  html.raw("<h1>").text(comparison.after.file).raw(" <small class=\"soft\">beside ");
  html.text(comparison.before.file).raw("</small>");
  for (const std::string& chip : device_chips(comparison)) {
    html.raw(" <span class=\"chip\">").text(chip).raw("</span>");
  }
  html.raw("</h1>\n<p class=\"line\">").text(comparison_words(comparison)).raw("</p>\n");
  html.raw("<p class=\"sub\">").text(spread_words(comparison)).raw("</p>\n<dl class=\"tiles\">");
  run_tile(html, "Before", comparison.before);
  run_tile(html, "After", comparison.after);
  tile(html, "Change", formatted("%+.1f %%", comparison.slowdown_pct),
       signed_ms(comparison.after.step_ms - comparison.before.step_ms) + " a step");
  if (comparison.max_slowdown_pct) {
    tile(html, "Allowed", formatted("%.3g %%", *comparison.max_slowdown_pct), "--max-slowdown");
  }
  html.raw("</dl>\n");
  return {"answer", "", html, std::string(tone_of(comparison))};
}

Section groups_section(const OpsComparison& comparison) {
  std::vector<StackPart> before;
  std::vector<StackPart> after;
  std::vector<std::vector<std::string>> rows;
  double before_ms = 0;
  double after_ms = 0;
  for (const ops::GroupChange& group : comparison.groups) {
    before.push_back({group.name, group.title, group.before_ms});
    after.push_back({group.name, group.title, group.after_ms});
    before_ms += group.before_ms;
    after_ms += group.after_ms;
    if (group.before_ms <= 0 && group.after_ms <= 0) continue;
    rows.push_back({group.title, milliseconds(group.before_ms), milliseconds(group.after_ms),
                    signed_ms(group.after_ms - group.before_ms)});
  }
  Html html;
  html.raw("<p class=\"soft\">The wall time of a step, each moment given to what ran in it. Both ");
  html.raw("bars have the same scale.</p>\n<div class=\"bars\">");
  const double whole = std::max(before_ms, after_ms);
  for (const auto& [name, parts, ms] :
       {std::tuple{"before", &before, before_ms}, std::tuple{"after", &after, after_ms}}) {
    BarRow row{name, "", {}, milliseconds(ms), "a step"};
    row.lane.raw("<div class=\"lane\">");
    add_stack(row.lane, *parts, whole);
    row.lane.raw("</div>");
    add_row(html, row);
  }
  html.raw("</div>\n");
  std::vector<StackPart> both = before;
  both.insert(both.end(), after.begin(), after.end());
  add_legend(html, both);
  html.add(html_table({"", "#before", "#after", "#change"}, rows));
  return {"groups", "Where a step goes", html, ""};
}

// All that its row shortens; "" where that is nothing.
std::string whole_name(const OperatorChange& change) {
  const bool has_kernels = change.reason == ops::ChangeReason::other_kernels;
  if (!has_kernels && text::elide(change.name, kLongestName) == change.name) return "";
  return change.name +
         (has_kernels ? ": " + change.before_kernel + " became " + change.after_kernel : "");
}

Section changes_section(const OpsComparison& comparison) {
  Html html;
  html.raw("<p class=\"soft\">What takes longer a step (red) or less (green), the most first.</p>");
  html.raw("\n<div class=\"bars\">");
  const double most =
      comparison.changes.empty() ? 0 : std::abs(comparison.changes.front().change_ms());
  size_t shown = 0;
  double rest_ms = 0;
  for (const OperatorChange& change : comparison.changes) {
    if (change.change_ms() == 0) continue;
    if (shown++ >= kMostRows) {
      rest_ms += change.change_ms();
      continue;
    }
    const BarTone tone = change.change_ms() > 0 ? BarTone::bad : BarTone::good;
    const std::string shapes =
        change.shapes.empty() || change.shapes == "[]" ? "" : change.shapes + "; ";
    add_row(html, {text::elide(change.name, kLongestName), shapes + change_reason_words(change),
                   bar_lane(tone, 100 * std::abs(change.change_ms()) / most),
                   signed_ms(change.change_ms()), "a step", whole_name(change)});
  }
  html.raw("</div>\n");
  if (shown > kMostRows) {
    html.raw("<p class=\"sub\">and ").text(std::to_string(shown - kMostRows)).raw(" more, ");
    html.text(signed_ms(rest_ms)).raw(" together; --json has them.</p>\n");
  }
  if (shown == 0) html.raw("<p>Nothing changed.</p>\n");
  return {"changes", "What changed", html, ""};
}

Section trust_section(const OpsComparison& comparison) {
  Html html;
  html.add(
      html_table({"figure", "from"}, {{"times", "measured: the two traces"},
                                      {"the change of the mean step", spread_words(comparison)}}));
  add_notes(html, comparison.notes);
  return {"trust", "Where it comes from", html, ""};
}

}  // namespace

std::vector<Section> ops_comparison_sections(const OpsComparison& comparison) {
  return {answer_section(comparison), changes_section(comparison), groups_section(comparison),
          trust_section(comparison)};
}

}  // namespace headroom::report
