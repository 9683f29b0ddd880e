#include "report/bench/nongemm_merged.h"

#include <algorithm>

#include "report/bench/nongemm.h"
#include "report/bench/nongemm_html.h"
#include "text/json_parts.h"
#include "text/number.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using bench::NongemmMerged;
using bench::NongemmRow;
using text::Align;
using text::formatted;
using text::Json;

// "A", "B": machines may have the same name.
std::string letter(size_t column) { return std::string(1, static_cast<char>('A' + column)); }

std::string machine_line(const NongemmMerged& merged, size_t column) {
  const NongemmMerged::Machine& machine = merged.machines[column];
  return letter(column) + ": " + nongemm_machine(machine.machine) + " (" +
         text::printable(machine.file) + ")";
}

// Of settings that every machine has: whose shares can be held against one another.
std::string verdict(const NongemmMerged& merged) {
  int64_t common = 0;
  std::vector<int64_t> most(merged.machines.size(), 0);
  for (const NongemmMerged::Row& row : merged.rows) {
    const bool is_common =
        std::ranges::all_of(row.by_machine, [](const auto& one) { return one.has_value(); });
    if (!is_common) continue;
    ++common;
    const auto highest = std::ranges::max_element(row.by_machine, {},
                                                  [](const auto& one) { return one->nongemm_pct; });
    ++most[static_cast<size_t>(highest - row.by_machine.begin())];
  }
  if (common == 0) return "The machines have no setting in common.";
  std::string words =
      "Of " + std::to_string(common) + " common settings the non-GEMM share is largest";
  for (size_t i = 0; i < most.size(); ++i) {
    words +=
        std::string(i == 0 ? " " : ", ") + "on " + letter(i) + " in " + std::to_string(most[i]);
  }
  return words + ".";
}

std::vector<std::string> cells_of(const NongemmMerged::Row& row) {
  std::vector<std::string> cells{nongemm_title(row.setting.model),
                                 nongemm_setting_words(row.setting)};
  for (const auto& one : row.by_machine) {
    const bool is_extrapolated = one && one->provenance == Provenance::extrapolated;
    cells.push_back(one ? formatted("%.1f %%", one->nongemm_pct) : "-");
    cells.push_back(one ? time_words(*one) + (is_extrapolated ? " *" : "") : "-");
  }
  return cells;
}

}  // namespace

std::string nongemm_merged_text(const NongemmMerged& merged, const text::Terminal& terminal) {
  std::vector<text::TableColumn> columns{{"model", Align::left, true},
                                         {"setting", Align::left, true}};
  for (size_t i = 0; i < merged.machines.size(); ++i) {
    columns.push_back({"non-GEMM " + letter(i), Align::right, false});
    columns.push_back({"time " + letter(i), Align::right, false});
  }
  text::Table table(std::move(columns));
  for (const NongemmMerged::Row& row : merged.rows) {
    const std::vector<std::string> cells = cells_of(row);
    table.row(std::vector<text::TableCell>(cells.begin(), cells.end()));
  }
  std::string words = verdict(merged) + "\n\n" + table.render(terminal) + "\n";
  for (size_t i = 0; i < merged.machines.size(); ++i) words += machine_line(merged, i) + "\n";
  return words + "* extrapolated: composed of few layers. -: not measured there.\n";
}

Json nongemm_merged_json(const NongemmMerged& merged) {
  const auto row_json = [](const NongemmMerged::Row& row) {
    return Json::object()
        .set("setting", bench::nongemm_setting_json(row.setting))
        .set("by_machine", text::json_array(row.by_machine, [](const auto& one) {
               return one ? nongemm_row_json(*one) : Json(nullptr);
             }));
  };
  const auto machine_json = [](const NongemmMerged::Machine& machine) {
    return Json::object()
        .set("file", machine.file)
        .set("machine", timing::machine_json(machine.machine))
        .set("not_measured", static_cast<int64_t>(machine.not_measured));
  };
  return Json::object()
      .set("schema", "headroom.bench_merge/1")
      .set("machines", text::json_array(merged.machines, machine_json))
      .set("rows", text::json_array(merged.rows, row_json));
}

std::vector<Section> nongemm_merged_sections(const NongemmMerged& merged) {
  Html answer;
  answer.raw("<h1>Non-GEMM work by machine</h1>\n<p class=\"line\">").text(verdict(merged));
  answer.raw("</p>\n");
  for (size_t i = 0; i < merged.machines.size(); ++i) {
    answer.raw("<p class=\"sub\">").text(machine_line(merged, i)).raw("</p>\n");
  }
  std::vector<NongemmLane> lanes;
  for (const NongemmMerged::Row& row : merged.rows) {
    for (size_t i = 0; i < row.by_machine.size(); ++i) {
      if (row.by_machine[i]) lanes.push_back({letter(i) + ": ", *row.by_machine[i]});
    }
  }
  std::vector<std::string> columns{"model", "setting"};
  for (size_t i = 0; i < merged.machines.size(); ++i) {
    columns.push_back("#non-GEMM " + letter(i));
    columns.push_back("#time " + letter(i));
  }
  std::vector<std::vector<std::string>> rows;
  for (const NongemmMerged::Row& row : merged.rows) rows.push_back(cells_of(row));
  Html figures;
  figures.add(html_table(columns, rows));
  figures.raw(
      "<p class=\"soft\">* extrapolated: composed of few layers. -: not measured there.</p>");
  return {{"answer", "", answer, "yes"},
          {"shares", "Where the time goes", nongemm_lanes(lanes), ""},
          {"figures", "Figures", figures, ""}};
}

}  // namespace headroom::report
