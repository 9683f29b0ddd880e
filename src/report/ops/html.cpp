#include "report/ops/html.h"

#include <algorithm>
#include <cmath>

#include "report/fit/words.h"
#include "report/ops/bars.h"
#include "report/ops/captions.h"
#include "report/ops/words.h"
#include "report/page/columns.h"
#include "report/page/roofline_chart.h"
#include "text/json_parts.h"
#include "text/number.h"

namespace headroom::report {
namespace {

using text::formatted;
using text::Json;

constexpr size_t kMostRows = 20;  // of a table; the rest is in --json

Section answer_section(const ops::OpsAnswer& answer) {
  Html html;
  html.raw("<h1>").text(answer.trace.file);
  if (!answer.trace.device.empty()) {
    html.raw(" <span class=\"chip\">").text(answer.trace.device).raw("</span>");
  }
  html.raw("</h1>\n<p class=\"line\">").text(bound_words(answer)).raw("</p>\n");
  const std::string best = best_changes_words(answer);
  if (!best.empty()) html.raw("<p class=\"sub\">").text(best + ".").raw("</p>\n");
  const bool has_starts = answer.trace.has_starts;
  const auto steps = has_starts ? static_cast<double>(answer.steps.size()) : 1.0;
  html.raw("<dl class=\"tiles\">");
  if (has_starts) {
    tile(html, "A step", milliseconds(answer.wall_time.total_ms / steps),
         "mean of " + std::to_string(answer.steps.size()));
  }
  tile(html, "Kernel time", milliseconds(answer.kernel_time.total_ms / steps),
       has_starts ? "a step" : "in all");
  if (answer.trace.has_device && has_starts) {
    tile(html, "Device idle", milliseconds(answer.idle.ms / steps),
         percent_words(
             answer.wall_time.total_ms > 0 ? 100 * answer.idle.ms / answer.wall_time.total_ms : 0) +
             " of the time");
  }
  if (answer.roofline) {
    tile(html, "Above the floor", milliseconds(answer.roofline->above_ms),
         "a step, at the limits of " + answer.roofline->device);
  }
  if (answer.replay) {
    tile(html, "Replay", formatted("%+.1f %%", answer.replay->error_pct), "off the measured run");
  }
  html.raw("</dl>\n");
  return {"answer", "", html, answer.trace.is_partial ? "at_risk" : "yes"};
}

Json timeline_json(const ops::OpsAnswer& answer, const ops::Timeline& timeline) {
  std::vector<bool> used(answer.kernel_time.groups.size(), false);
  Json rows = Json::array();
  for (const ops::TimelineRow& row : timeline.rows) {
    std::vector<int64_t> start, span, name, group;
    for (const ops::Mark& mark : row.marks) {
      start.push_back(mark.start_ns);
      span.push_back(mark.span_ns);
      name.push_back(mark.name);
      group.push_back(mark.group);
      if (row.kind == ops::RowKind::stream && mark.group < used.size()) used[mark.group] = true;
    }
    constexpr std::string_view kKinds[] = {"host", "calls", "stream", "gaps"};
    rows.push_back(Json::object()
                       .set("title", row.title)
                       .set("kind", std::string(kKinds[static_cast<size_t>(row.kind)]))
                       .set("marks", Json::object()
                                         .set("count", static_cast<int64_t>(row.marks.size()))
                                         .set("start", column_of(start))
                                         .set("span", column_of(span))
                                         .set("name", column_of(name))
                                         .set("group", column_of(group))));
  }
  Json groups = Json::array();
  for (size_t i = 0; i < used.size(); ++i) {
    const ops::GroupShare& group = answer.kernel_time.groups[i];
    groups.push_back(Json::object()
                         .set("title", group.title)
                         .set("key", std::string(group_colour(group.name)))
                         .set("is_used", static_cast<bool>(used[i])));
  }
  Json steps = Json::array();
  for (const ops::TraceStep& step : timeline.steps) steps.push_back(step.start_ns);
  return Json::object()
      .set("length_ns", timeline.length_ns)
      .set("left_out", static_cast<int64_t>(timeline.left_out))
      .set("steps", std::move(steps))
      .set("groups", std::move(groups))
      .set("names", text::json_array(timeline.names))
      .set("rows", std::move(rows));
}

Section timeline_section(const ops::OpsAnswer& answer, const ops::Timeline& timeline) {
  Html html;
  html.raw("<p class=\"soft\">What ran when. Where the device had nothing to do the streams are ");
  html.raw("shaded, by what the next kernel waited for; dashed lines are begins of steps.</p>\n");
  html.raw("<div class=\"map\" data-chart=\"timeline\">");
  html.json(timeline_json(answer, timeline)).raw("</div>\n");
  Section section{"timeline", "Timeline", html, ""};
  section.has_timeline = true;
  return section;
}

// One bar of groups, the shares as widths.
void accounting_bar(Html& html, std::string_view name, std::string_view what,
                    const ops::Accounting& accounting) {
  html.raw("<h3>").text(name).raw(" <small class=\"soft\">");
  html.text(milliseconds(accounting.total_ms) + ", " + std::string(what)).raw("</small></h3>");
  std::vector<StackPart> parts;
  for (const ops::GroupShare& group : accounting.groups) {
    parts.push_back({group.name, group.title, group.ms, ", " + percent_words(group.pct)});
  }
  add_stack(html, parts, accounting.total_ms);
  html.raw("\n");
}

Section accounts_section(const ops::OpsAnswer& answer) {
  Html html;
  const bool has_starts = answer.trace.has_starts;
  if (has_starts) {
    html.raw(
        "<p class=\"soft\">The same run, counted three ways. They differ because kernels run ");
    html.raw("side by side, because the device waits, and because the paper adds the host's time ");
    html.raw("of an operator to that of its kernels.</p>\n");
    accounting_bar(html, "Wall time", "each moment given to what ran in it", answer.wall_time);
  } else {
    html.raw(
        "<p class=\"soft\">The same run, counted twice: the paper adds the host's time of an ");
    html.raw("operator to that of its kernels.</p>\n");
  }
  accounting_bar(html, "Kernel time", "what the device was busy with", answer.kernel_time);
  accounting_bar(html, "NonGEMM Bench", "host and device added", answer.nongemm_bench);
  html.raw("<ul class=\"legend\">");
  std::vector<std::vector<std::string>> rows;
  const ops::Accounting& rows_of = has_starts ? answer.wall_time : answer.kernel_time;
  const ops::GroupShare nothing;
  for (const ops::GroupShare& group : rows_of.groups) {
    const ops::GroupShare& wall = has_starts ? group : nothing;
    const ops::GroupShare* kernel = find_group(answer.kernel_time, group.name);
    const ops::GroupShare* paper = find_group(answer.nongemm_bench, group.name);
    const bool is_there =
        wall.ms > 0 || (kernel != nullptr && kernel->ms > 0) || (paper != nullptr && paper->ms > 0);
    if (!is_there) continue;
    html.raw("<li><span class=\"swatch\" style=\"background-color:var(--");
    html.text(group_colour(group.name)).raw(")\"></span>").text(group.title).raw("</li>");
    const auto share = [](const ops::GroupShare* one) {
      return one == nullptr || one->ms == 0 ? std::string() : percent_words(one->pct);
    };
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(group.title);
    if (has_starts) {
      row.push_back(wall.ms == 0 ? "" : milliseconds(wall.ms));
      row.push_back(share(&wall));
    }
    row.push_back(kernel == nullptr || kernel->ms == 0 ? "" : milliseconds(kernel->ms));
    row.push_back(share(kernel));
    row.push_back(share(paper));
  }
  html.raw("</ul>\n");
  std::vector<std::string> heads{"", "#kernel time", "#", "#NonGEMM Bench"};
  if (has_starts) heads.insert(heads.begin() + 1, {"#wall time", "#"});
  html.add(html_table(heads, rows));
  if (const std::string idle = idle_words(answer); !idle.empty()) {
    html.raw("<p class=\"sub\">").text(idle + ".").raw("</p>\n");
  }
  return {"accounts", "Where it goes", html, ""};
}

// A lane with the replayed speed-up, its interval, and Amdahl's word on it as a line.
void change_lane(Html& html, const ops::HorizonChange& change, double most) {
  const auto part = [most](double speedup) { return 100 * (speedup - 1) / (most - 1); };
  const double low = std::max(change.speedup_low, 1.0);
  html.raw("<div class=\"row\"><div class=\"name\">").text(change.title);
  html.raw("</div><div class=\"lane tone-yes\"><i class=\"fill\" style=\"width:");
  html.percent(part(change.speedup)).raw("\"></i><i class=\"whisker\" style=\"left:");
  html.percent(part(low)).raw(";width:");
  html.percent(part(change.speedup_high) - part(low)).raw("\"></i>");
  if (change.amdahl_speedup > 0 && change.amdahl_speedup <= most) {
    html.raw("<i class=\"limit\" style=\"left:").percent(part(change.amdahl_speedup));
    html.raw("\"></i>");
  }
  html.raw("</div><div class=\"figure\">").text(formatted("%.2fx", change.speedup));
  html.raw("<small>Amdahl ");
  html.text(change.amdahl_speedup > 0 ? formatted("%.2fx", change.amdahl_speedup)
                                      : std::string("no bound"));
  html.raw("</small></div></div>\n");
}

Section horizon_section(const ops::OpsAnswer& answer) {
  Html html;
  html.raw("<p class=\"soft\">The run replayed under each change: host, launches, streams and ");
  html.raw("waits are simulated anew. The dashed line is what Amdahl's law on kernel time ");
  html.raw("promises.</p>\n");
  double most = 1.1;
  for (const ops::HorizonChange& change : answer.horizon) {
    most = std::max({most, change.speedup_high, std::min(change.amdahl_speedup, 4.0)});
  }
  html.raw("<div class=\"bars\">");
  for (const ops::HorizonChange& change : answer.horizon) change_lane(html, change, most);
  html.raw("</div>\n<p class=\"sub\">").text(replay_words(answer) + ".").raw("</p>\n");
  html.raw("<p class=\"sub\">").text(between_words(answer) + " (the whiskers).").raw("</p>\n");
  return {"horizon", "What would help", html, is_replay_trusted(answer) ? "" : "at_risk"};
}

Section roofline_section(const ops::OperatorRoofline& roofline) {
  Html html;
  html.raw("<p class=\"soft\">Each circle is an operator with its shapes, as large as the time ");
  html.raw("that its kernels take; what it is below the roof is time above its floor.</p>\n");
  html.add(roofline_chart(roofline));
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::min(kMostRows, roofline.rows.size()); ++i) {
    const ops::RooflineRow& row = roofline.rows[i];
    if (row.above_ms <= 0) break;
    rows.push_back({row.name, row.shapes, formatted("%.0f", row.count), milliseconds(row.kernel_ms),
                    milliseconds(row.floor_ms), milliseconds(row.above_ms),
                    formatted("%.0f %%", row.achieved_pct),
                    row.is_compute_bound ? row.rate + " FLOP/s" : std::string("bandwidth")});
  }
  html.add(html_table(
      {"operator", "shapes", "#count", "#a step", "#floor", "#to win", "#of the limit", "limit"},
      rows));
  html.raw("<p class=\"sub\">").text(percent_words(roofline.covered_pct));
  html.raw(" of the kernel time is in operators whose work could be counted. Limits: ");
  html.text(roofline.device + ", " + roofline.source).raw(".</p>\n");
  return {"roofline", "Roofline", html, ""};
}

Section operators_section(const ops::OpsAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::min(kMostRows, answer.operators.size()); ++i) {
    const ops::OperatorTime& row = answer.operators[i];
    rows.push_back({row.name, row.group, with_commas(row.count), milliseconds(row.kernel_ms),
                    percent_words(row.pct)});
  }
  Html html;
  html.add(html_table({"operator", "group", "#count", "#kernel time", "#"}, rows));
  return {"operators", "Operators", html, ""};
}

Section trust_section(const ops::OpsAnswer& answer) {
  const ops::Coverage& coverage = answer.coverage;
  std::vector<std::vector<std::string>> rows = {
      {"times", "measured: the trace"},
      {"groups", "rules; " + percent_words(coverage.unclassified_pct_of_kernel_time) +
                     " of the kernel time could not be sorted, " +
                     percent_words(coverage.unlinked_pct_of_kernel_time) +
                     " not be linked to an operator"}};
  if (!answer.horizon.empty())
    rows.push_back({"what would help", "simulated: the trace, replayed"});
  if (answer.roofline) {
    rows.push_back({"floors", "counted FLOPs and bytes at the device's limits, " +
                                  limits_words(*answer.roofline)});
  }
  Html html;
  html.add(html_table({"figure", "from"}, rows));
  if (!answer.notes.empty() || !answer.trace.faults.empty()) {
    html.raw("<h3>Notes</h3><ul class=\"notes\">");
    for (const std::string& note : answer.notes) html.raw("<li>").text(note).raw("</li>");
    for (const std::string& fault : answer.trace.faults) {
      html.raw("<li>not read: ").text(fault).raw("</li>");
    }
    html.raw("</ul>\n");
  }
  return {"trust", "Where it comes from", html, ""};
}

}  // namespace

std::vector<Section> ops_sections(const ops::OpsAnswer& answer, const ops::Timeline& timeline) {
  std::vector<Section> sections{answer_section(answer)};
  if (answer.trace.has_starts) sections.push_back(timeline_section(answer, timeline));
  sections.push_back(accounts_section(answer));
  if (!answer.horizon.empty() && answer.replay) sections.push_back(horizon_section(answer));
  if (answer.roofline) sections.push_back(roofline_section(*answer.roofline));
  sections.push_back(operators_section(answer));
  sections.push_back(trust_section(answer));
  return sections;
}

}  // namespace headroom::report
