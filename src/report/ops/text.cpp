#include "report/ops/text.h"

#include <algorithm>
#include <cmath>

#include "report/fit/words.h"
#include "report/ops/captions.h"
#include "report/ops/words.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using text::Align;
using text::formatted;
using text::Style;
using text::Table;
using text::Terminal;

constexpr size_t kOperatorRows = 12;
constexpr size_t kRooflineRows = 8;

std::string times(double speedup) { return formatted("%.2fx", speedup); }

std::string first_lines(const ops::OpsAnswer& answer, const Terminal& terminal) {
  const ops::TraceFacts& trace = answer.trace;
  std::string lines = text::wrapped(bound_words(answer), terminal, 0, Style::bold);
  const std::string best = best_changes_words(answer);
  if (!best.empty()) lines += text::wrapped(best, terminal);
  std::string facts = trace.file;
  if (!trace.device.empty()) facts += ", " + trace.device;
  if (trace.rank >= 0) facts += ", rank " + std::to_string(trace.rank);
  const size_t steps = answer.steps.size();
  facts +=
      ": " +
      (!trace.has_starts ? std::string("durations alone")
       : trace.has_steps ? std::to_string(steps) + (steps == 1 ? " step" : " steps")
                         : std::string("no steps named")) +
      ", " +
      milliseconds(trace.has_starts ? answer.wall_time.total_ms : answer.kernel_time.total_ms) +
      ", " + with_commas(trace.kernels) + (trace.has_device ? " kernels" : " pieces of operators");
  lines += text::wrapped(facts, terminal);
  if (trace.is_partial) {
    constexpr std::string_view kPartial = "not all of the file could be read:";
    lines += text::wrapped_marked(std::string(kPartial) + " what follows is about what could",
                                  kPartial, Style::warning, terminal);
  }
  return lines;
}

std::string cell(const ops::GroupShare& group) {
  return group.ms == 0 ? "" : percent_words(group.pct);
}

// Where there is no wall time to stand in front.
std::string groups_of_durations(const ops::OpsAnswer& answer, const Terminal& terminal) {
  Table table({{"", Align::left, true},
               {"kernel time", Align::right, false},
               {"", Align::right, false},
               {"NonGEMM Bench", Align::right, false, 1}});
  std::vector<ops::GroupShare> rows = answer.kernel_time.groups;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.ms > b.ms; });
  for (const ops::GroupShare& kernel : rows) {
    const ops::GroupShare* paper = find_group(answer.nongemm_bench, kernel.name);
    if (kernel.ms == 0 && (paper == nullptr || paper->ms == 0)) continue;
    const Style style = kernel.name == "unclassified" ? Style::warning : Style::plain;
    table.row({{kernel.title, style},
               {kernel.ms == 0 ? "" : milliseconds(kernel.ms), style},
               {cell(kernel), style},
               {paper == nullptr ? "" : cell(*paper), style}});
  }
  table.row({{"total", Style::bold},
             {milliseconds(answer.kernel_time.total_ms), Style::bold},
             "",
             {milliseconds(answer.nongemm_bench.total_ms), Style::bold}});
  return table.render(terminal);
}

std::string groups(const ops::OpsAnswer& answer, const Terminal& terminal) {
  if (!answer.trace.has_starts) return groups_of_durations(answer, terminal);
  Table table({{"", Align::left, true},
               {"wall time", Align::right, false},
               {"", Align::right, false},
               {"kernel time", Align::right, false, 1},
               {"", Align::right, false, 2},
               {"NonGEMM Bench", Align::right, false, 3}});
  std::vector<ops::GroupShare> rows = answer.wall_time.groups;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.ms > b.ms; });
  const ops::GroupShare nothing;
  for (const ops::GroupShare& wall : rows) {
    const ops::GroupShare* kernel = find_group(answer.kernel_time, wall.name);
    const ops::GroupShare* paper = find_group(answer.nongemm_bench, wall.name);
    if (kernel == nullptr) kernel = &nothing;
    if (paper == nullptr) paper = &nothing;
    if (wall.ms == 0 && kernel->ms == 0 && paper->ms == 0) continue;
    const Style style = wall.name == "unclassified" ? Style::warning : Style::plain;
    table.row({{wall.title, style},
               {wall.ms == 0 ? "" : milliseconds(wall.ms), style},
               {cell(wall), style},
               {kernel->ms == 0 ? "" : milliseconds(kernel->ms), style},
               {cell(*kernel), style},
               {cell(*paper), style}});
  }
  table.row({{"total", Style::bold},
             {milliseconds(answer.wall_time.total_ms), Style::bold},
             "",
             {milliseconds(answer.kernel_time.total_ms), Style::bold},
             "",
             {milliseconds(answer.nongemm_bench.total_ms), Style::bold}});
  const std::string idle = idle_words(answer);
  return table.render(terminal) + (idle.empty() ? "" : text::wrapped(idle, terminal));
}

std::string operators(const ops::OpsAnswer& answer, const Terminal& terminal) {
  Table table({{"operator", Align::left, true},
               {"group", Align::left, false, 1},
               {"count", Align::right, false, 2},
               {"kernel time", Align::right, false},
               {"", Align::right, false}});
  for (size_t i = 0; i < std::min(kOperatorRows, answer.operators.size()); ++i) {
    const ops::OperatorTime& row = answer.operators[i];
    table.row({text::elide(text::printable(row.name), 60), row.group, with_commas(row.count),
               milliseconds(row.kernel_ms), percent_words(row.pct)});
  }
  std::string lines = table.render(terminal);
  if (answer.operators.size() > kOperatorRows) {
    lines += text::paint("and " + std::to_string(answer.operators.size() - kOperatorRows) +
                             " more (--json has them)",
                         Style::dim, terminal.colour) +
             "\n";
  }
  return lines;
}

const ops::HorizonChange* find_change(const ops::OpsAnswer& answer, const std::string& name) {
  for (const ops::HorizonChange& change : answer.horizon) {
    if (change.change == name) return &change;
  }
  return nullptr;
}

std::string amdahl(const ops::HorizonChange& change) {
  return change.amdahl_speedup > 0 ? times(change.amdahl_speedup) : std::string("no bound");
}

// What makes a thing twice as fast and what takes it away are one row.
void horizon_row(const ops::OpsAnswer& answer, const ops::HorizonChange& change, Table& table) {
  constexpr std::string_view kTwice = "_2x";
  const ops::HorizonChange* instant = nullptr;
  if (change.change.ends_with(kTwice)) {
    const std::string stem = change.change.substr(0, change.change.size() - kTwice.size());
    instant = find_change(answer, stem + "_instant");
  }
  table.row({text::printable(change.title),
             {times(change.speedup), Style::bold},
             times(change.speedup_low) + " - " + times(change.speedup_high),
             {amdahl(change), Style::dim},
             instant == nullptr ? "" : times(instant->speedup),
             {instant == nullptr ? "" : amdahl(*instant), Style::dim}});
}

std::string horizon(const ops::OpsAnswer& answer, const Terminal& terminal) {
  if (answer.horizon.empty() || !answer.replay) return "";
  Table table({{"change", Align::left, true, 0, text::Cut::middle},
               {"replayed", Align::right, false},
               {"between", Align::right, false},
               {"Amdahl's law", Align::right, false, 1},
               {"in no time", Align::right, false, 2},
               {"Amdahl's law", Align::right, false, 3}});
  for (const ops::HorizonChange& change : answer.horizon) {
    if (!change.change.ends_with("_instant")) horizon_row(answer, change, table);
  }
  constexpr std::string_view kDistrust = "do not trust these:";
  const std::string replayed =
      is_replay_trusted(answer)
          ? text::wrapped(replay_words(answer), terminal)
          : text::wrapped_marked(std::string(kDistrust) + " " + replay_words(answer), kDistrust,
                                 Style::warning, terminal);
  return "\n" + table.render(terminal) + replayed + text::wrapped(between_words(answer), terminal);
}

// Where better kernels could win most, at most.
std::string roofline(const ops::OpsAnswer& answer, const Terminal& terminal) {
  if (!answer.roofline || answer.roofline->above_ms <= 0) return "";
  const ops::OperatorRoofline& roofline = *answer.roofline;
  Table table({{"above its floor, a step", Align::left, true},
               {"shapes", Align::left, true},
               {"count", Align::right, false, 2},
               {"kernel time", Align::right, false, 1},
               {"floor", Align::right, false, 3},
               {"to win", Align::right, false},
               {"of the limit", Align::right, false},
               {"limit", Align::left, false, 4}});
  for (size_t i = 0; i < std::min(kRooflineRows, roofline.rows.size()); ++i) {
    const ops::RooflineRow& row = roofline.rows[i];
    if (row.above_ms <= 0) break;
    table.row({text::elide(text::printable(row.name), 40),
               text::elide(text::printable(row.shapes), 36),
               formatted("%.0f", row.count),
               milliseconds(row.kernel_ms),
               milliseconds(row.floor_ms),
               {milliseconds(row.above_ms), Style::bold},
               formatted("%.0f %%", row.achieved_pct),
               row.is_compute_bound ? row.rate + " FLOP/s" : std::string("bandwidth")});
  }
  const std::string summary = "at " + roofline.device + "'s limits (" + limits_words(roofline) +
                              ") these operators, " + percent_words(roofline.covered_pct) +
                              " of the kernel time, need " + milliseconds(roofline.floor_ms) +
                              " a step of the " + milliseconds(roofline.kernel_ms) +
                              " that they take";
  return "\n" + table.render(terminal) + text::wrapped(summary, terminal);
}

// What a kernel reached of its limits, by the names that ncu's two pages have for it.
struct KnownCounter {
  const char* title;
  std::string_view names[2];
};
constexpr KnownCounter kKnownCounters[] = {
    {"DRAM", {"dram__throughput.avg.pct_of_peak_sustained_elapsed", "DRAM Throughput"}},
    {"compute", {"sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput"}},
    {"tensor cores", {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", ""}},
    {"occupancy", {"sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"}}};

std::string counter_cell(const ops::CounterRow& row, const KnownCounter& known) {
  for (const ops::CounterValue& value : row.values) {
    const bool is_it = value.name == known.names[0] || value.name == known.names[1];
    if (is_it && value.unit == "%") return percent_words(value.mean);
  }
  return "";
}

std::string counters(const ops::OpsAnswer& answer, const Terminal& terminal) {
  if (!answer.counters) return "";
  std::vector<text::TableColumn> columns{{"counted kernels", Align::left, true},
                                         {"count", Align::right, false},
                                         {"kernel time", Align::right, false}};
  for (const KnownCounter& known : kKnownCounters) {
    // The last is spared first.
    columns.push_back({known.title, Align::right, false, static_cast<int>(columns.size())});
  }
  Table table(columns);
  const std::vector<ops::CounterRow>& rows = answer.counters->rows;
  for (size_t i = 0; i < std::min(kOperatorRows, rows.size()); ++i) {
    std::vector<text::TableCell> cells{text::elide(text::printable(rows[i].kernel), 60),
                                       with_commas(rows[i].count), milliseconds(rows[i].kernel_ms)};
    for (const KnownCounter& known : kKnownCounters) {
      cells.emplace_back(counter_cell(rows[i], known));
    }
    table.row(cells);
  }
  std::string summary = "counted (means, of the device's peak) for " +
                        percent_words(answer.counters->covered_pct) + " of the kernel time";
  if (answer.counters->unmatched_launches > 0) {
    summary += "; counted launches of no kernel of this trace: " +
               with_commas(answer.counters->unmatched_launches);
  }
  return "\n" + table.render(terminal) +
         text::wrapped(summary + "; --json has all counters", terminal);
}

std::string coverage(const ops::OpsAnswer& answer, const Terminal& terminal) {
  const ops::Coverage& coverage = answer.coverage;
  std::string lines = "of the kernel time " + percent_words(coverage.unlinked_pct_of_kernel_time) +
                      " could not be linked to an operator, " +
                      percent_words(coverage.unclassified_pct_of_kernel_time) + " to a group";
  if (coverage.names_agree_pct_of_kernel_time) {
    lines += "; names alone sort " + percent_words(*coverage.names_agree_pct_of_kernel_time) +
             " as the operators do";
  }
  return text::wrapped(lines, terminal);
}

}  // namespace

std::string ops_text(const ops::OpsAnswer& answer, const Terminal& terminal) {
  std::string lines = first_lines(answer, terminal);
  lines += "\n" + groups(answer, terminal);
  lines += "\n" + operators(answer, terminal);
  lines += horizon(answer, terminal);
  lines += roofline(answer, terminal);
  lines += counters(answer, terminal);
  lines += "\n" + coverage(answer, terminal);
  for (const std::string& fault : answer.trace.faults) {
    lines += text::wrapped("not read: " + fault, terminal, kNoteIndent);
  }
  for (const std::string& note : answer.notes) {
    lines += text::wrapped("note: " + note, terminal, kNoteIndent);
  }
  return lines;
}

}  // namespace headroom::report
