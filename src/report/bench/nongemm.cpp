#include "report/bench/nongemm.h"

#include <algorithm>
#include <set>

#include "text/json_parts.h"
#include "text/number.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {

namespace {

using bench::NongemmAnswer;
using bench::NongemmEffects;
using bench::NongemmRecord;
using bench::NongemmRow;
using bench::NongemmSetting;
using text::Align;
using text::formatted;
using text::Json;
using text::or_null;
using text::Table;
using text::TableCell;
using text::Terminal;

// Above it other work took part in what was measured.
constexpr double kBusyLoad = 0.5;
// Of the profiled time: below it operators do not account for what a run takes.
constexpr double kEnoughCoveredPct = 95;

std::string nongemm_engine(const std::string& engine) {
  if (engine == "onnxruntime") return "ONNX Runtime";
  if (engine == "graphed") return "PyTorch in a graph";
  return engine == "compiled" ? "PyTorch compiled" : "PyTorch eager";
}

std::string counted(int64_t count, std::string_view of) {
  return std::to_string(count) + " " + std::string(of);
}

bool is_plain(const NongemmRow& row) {
  return row.setting.quantize == "none" && row.setting.fusion == "none";
}

std::string rows_table(const NongemmAnswer& answer, const Terminal& terminal) {
  const bool has_energy = std::ranges::any_of(
      answer.rows, [](const NongemmRow& row) { return row.joules.has_value(); });
  std::vector<text::TableColumn> columns{
      {"model", Align::left, true},      {"setting", Align::left, true},
      {"time", Align::right, false},     {"±", Align::right, false},
      {"GEMM", Align::right, false},     {"attention", Align::right, false},
      {"non-GEMM", Align::right, false}, {"paper's", Align::right, false},
      {"host", Align::right, false}};
  if (has_energy) columns.push_back({"energy", Align::right, false});
  columns.push_back({"most of it", Align::left, true});
  Table table(std::move(columns));
  for (const NongemmRow& row : answer.rows) {
    const bool is_extrapolated = row.provenance == Provenance::extrapolated;
    std::vector<TableCell> cells{
        nongemm_title(row.setting.model) + (is_extrapolated ? " *" : ""),
        nongemm_setting_words(row.setting),
        time_words(row),
        interval_words(row),
        formatted("%.1f %%", row.gemm_pct),
        formatted("%.1f %%", row.attention_pct),
        TableCell(formatted("%.1f %%", row.nongemm_pct), text::Style::bold),
        row.paper_nongemm_pct ? formatted("%.1f %%", *row.paper_nongemm_pct) : "-",
        formatted("%.1f %%", 100 - row.covered_pct)};
    if (has_energy) cells.emplace_back(row.joules ? formatted("%.3g J", *row.joules) : "-");
    cells.emplace_back(largest_other_group(row));
    table.row(std::move(cells));
  }
  return table.render(terminal);
}

std::string legend(const NongemmAnswer& answer) {
  std::string words =
      "\nShares of what operators take, by the groups of `headroom ops`; paper's: non-GEMM by the "
      "paper's formula and names,\nwhich count fused attention as GEMM (-: they miss over 10 % of "
      "the time). ±: of the median's interval, which one run\nhas not. host: of a profiled run, "
      "when no "
      "operator ran: Python or the engine between them. Weights are random.\n";
  std::set<std::string> composed;
  for (const NongemmRow& row : answer.rows) {
    if (row.measured_layers.size() != 2) continue;
    composed.insert(nongemm_title(row.setting.model) + " (" +
                    std::to_string(row.measured_layers[0]) + " and " +
                    std::to_string(row.measured_layers[1]) + " of " +
                    std::to_string(row.layers_of_model.value_or(0)) + " layers)");
  }
  if (!composed.empty()) {
    words += "* extrapolated: few layers were run, and the whole is composed of them: ";
    std::string names;
    for (const std::string& name : composed) names += (names.empty() ? "" : ", ") + name;
    words += names + ".\n";
  }
  return words;
}

// Where operators leave much of the time to the host: Python between them, or waiting.
std::string coverage_words(const NongemmAnswer& answer) {
  const NongemmRow* least = nullptr;
  int64_t few = 0;
  for (const NongemmRow& row : answer.rows) {
    few += row.covered_pct < kEnoughCoveredPct ? 1 : 0;
    if (least == nullptr || row.covered_pct < least->covered_pct) least = &row;
  }
  if (few == 0) return {};
  return "Operators cover less than 95 % of the profiled time in " + counted(few, "of ") +
         counted(std::ssize(answer.rows),
                 "settings (the rest is the host's own, shown as such): ") +
         formatted("%.0f %% at least, ", least->covered_pct) + nongemm_title(least->setting.model) +
         ", " + nongemm_setting_words(least->setting) + ".\n";
}

// A line for each note of a model: most are said of several of its settings.
std::string row_notes(const NongemmAnswer& answer) {
  struct Line {
    const NongemmRow* first = nullptr;
    const std::string* note = nullptr;
    int64_t settings = 0;
  };
  std::vector<Line> lines;
  for (const NongemmRow& row : answer.rows) {
    for (const std::string& note : row.notes) {
      auto line = std::ranges::find_if(lines, [&](const Line& known) {
        return *known.note == note && known.first->setting.model == row.setting.model;
      });
      if (line == lines.end()) line = lines.insert(line, Line{&row, &note, 0});
      ++line->settings;
    }
  }
  std::string words;
  for (const Line& line : lines) {
    const NongemmSetting& setting = line.first->setting;
    words +=
        nongemm_title(setting.model) + ", " +
        (line.settings == 1 ? nongemm_setting_words(setting) : counted(line.settings, "settings")) +
        ": " + text::printable(*line.note) + ".\n";
  }
  return words;
}

std::string notes_of(const NongemmAnswer& answer) {
  std::string words = row_notes(answer);
  for (const std::string& note : answer.notes) words += text::printable(note) + ".\n";
  words += coverage_words(answer);
  if (answer.machine.load > kBusyLoad && answer.machine.kind == "cpu") {
    words += "The machine was busy (load " + formatted("%.1f", answer.machine.load) +
             "): times hold what other work took, and shares too where threads wait for one "
             "another; fewer --threads suffer less.\n";
  }
  return words;
}

// A line for each reason: what an engine lacks it lacks for all models, and a model that cannot be
// made fails in all of its settings.
std::string refused_words(const NongemmAnswer& answer) {
  struct Line {
    const NongemmRecord* first = nullptr;
    int64_t settings = 0;
    std::vector<std::string> titles;
  };
  std::vector<Line> lines;
  for (const NongemmRecord& record : answer.refused) {
    auto line = std::ranges::find_if(lines, [&](const Line& known) {
      return known.first->reason == record.reason &&
             known.first->setting.engine == record.setting.engine;
    });
    if (line == lines.end()) line = lines.insert(line, Line{&record, 0, {}});
    ++line->settings;
    const std::string title = nongemm_title(record.setting.model);
    if (std::ranges::find(line->titles, title) == line->titles.end()) line->titles.push_back(title);
  }
  std::string words = lines.empty() ? "" : "\nNot measured:\n";
  for (const Line& line : lines) {
    std::string titles;
    for (const std::string& title : line.titles) titles += title + ", ";
    const NongemmSetting& setting = line.first->setting;
    words += "  " + titles +
             (line.settings == 1
                  ? nongemm_setting_words(setting)
                  : nongemm_engine(setting.engine) + ", " + counted(line.settings, "settings")) +
             (line.first->status == bench::NongemmStatus::failed ? ", failed: " : ": ") +
             text::printable(line.first->reason) + "\n";
  }
  return words;
}

// Of pairs that there are none of.
Json or_none(double speedup) { return speedup > 0 ? Json(speedup) : Json(nullptr); }

Json effects_json(const NongemmEffects& effects) {
  return Json::object()
      .set("paper_range_pct",
           Json::array().push_back(bench::kPaperLowPct).push_back(bench::kPaperHighPct))
      .set("paper_range_fused_pct",
           Json::array().push_back(bench::kPaperFusedLowPct).push_back(bench::kPaperFusedHighPct))
      .set("compared", effects.compared)
      .set("below", effects.below)
      .set("within", effects.within)
      .set("above", effects.above)
      .set("int8_pairs", effects.int8_pairs)
      .set("int8_raised", effects.int8_raised)
      .set("int4_pairs", effects.int4_pairs)
      .set("int4_raised", effects.int4_raised)
      .set("fusion_pairs", effects.fusion_pairs)
      .set("fusion_lowered", effects.fusion_lowered)
      .set("fused_below", effects.fused_below)
      .set("fused_within", effects.fused_within)
      .set("fused_above", effects.fused_above)
      .set("int8_speedup", or_none(effects.int8_speedup))
      .set("int4_speedup", or_none(effects.int4_speedup))
      .set("fusion_speedup", or_none(effects.fusion_speedup))
      .set("exceptions", text::json_array(effects.exceptions));
}

}  // namespace

std::string nongemm_machine(const timing::Machine& machine) {
  return text::printable(machine.product) + ", " + std::to_string(machine.units) +
         (machine.kind != "cpu" ? " multiprocessors"
          : machine.units == 1  ? " thread"
                                : " threads") +
         ", PyTorch " + text::printable(machine.torch);
}

Json nongemm_row_json(const NongemmRow& row) {
  return Json::object()
      .set("setting", bench::nongemm_setting_json(row.setting))
      .set("title", nongemm_title(row.setting.model))
      .set("provenance", name_of(row.provenance))
      .set("seconds", row.seconds)
      .set("seconds_half_width", or_null(row.seconds_half))
      .set("measured_layers", text::json_array(row.measured_layers))
      .set("layers_of_model", or_null(row.layers_of_model))
      .set("parameters", or_null(row.parameters))
      .set("gemm_pct", row.gemm_pct)
      .set("attention_pct", row.attention_pct)
      .set("nongemm_pct", row.nongemm_pct)
      .set("paper_nongemm_pct", or_null(row.paper_nongemm_pct))
      .set("covered_pct", row.covered_pct)
      .set("joules", or_null(row.joules))
      .set("profiler_cost_pct", row.profiler_cost_pct)
      .set("groups", text::json_array(
                         row.groups,
                         [](const auto& group) {
                           return Json::object().set("name", group.first).set("ms", group.second);
                         }))
      .set("notes", text::json_array(row.notes));
}

std::string nongemm_title(const std::string& model) {
  const auto& models = bench::nongemm_models();
  const auto found = std::ranges::find(models, model, &bench::NongemmModel::name);
  return found == models.end() ? text::elide(text::printable(model), 40) : found->title;
}

std::string nongemm_setting_words(const NongemmSetting& setting) {
  std::string words = nongemm_engine(setting.engine);
  words += ", batch " + std::to_string(setting.batch) + ", ";
  words += setting.quantize == "none" ? setting.dtype : setting.quantize;
  if (setting.engine == "onnxruntime") words += ", fusion " + setting.fusion;
  return words + (setting.phase == "decode" ? ", decode" : "");
}

std::string largest_other_group(const NongemmRow& row) {
  double total = 0;
  const std::pair<std::string, double>* most = nullptr;
  for (const auto& group : row.groups) {
    total += group.second;
    if (group.first == "gemm" || group.first == "attention") continue;
    if (most == nullptr || group.second > most->second) most = &group;
  }
  if (most == nullptr || most->second <= 0) return {};
  return text::printable(most->first) + formatted(" %.0f %%", 100 * most->second / total);
}

std::string time_words(const NongemmRow& row) {
  if (row.seconds >= 100) return formatted("%.0f s", row.seconds);
  return row.seconds < 1 ? formatted("%.3g ms", row.seconds * 1e3)
                         : formatted("%.3g s", row.seconds);
}

std::string interval_words(const NongemmRow& row) {
  return row.seconds_half ? formatted("%.0f %%", 100 * *row.seconds_half / row.seconds) : "one run";
}

std::string nongemm_verdict(const NongemmAnswer& answer) {
  double low = 100;
  double high = 0;
  std::set<std::string> models;
  for (const NongemmRow& row : answer.rows) {
    if (!is_plain(row)) continue;
    low = std::min(low, row.nongemm_pct);
    high = std::max(high, row.nongemm_pct);
    models.insert(row.setting.model);
  }
  if (models.empty()) return "Nothing was measured without quantization and fusion.";
  const std::string where = " (" + nongemm_machine(answer.machine) + ")";
  const std::string share = high - low < 0.05
                                ? formatted("%.1f %%", low)
                                : formatted("%.1f", low) + formatted(" to %.1f %%", high);
  const std::string of = models.size() == 1
                             ? nongemm_title(*models.begin()) + "'s time"
                             : "the time of " + std::to_string(models.size()) + " models";
  return "Non-GEMM work takes " + share + " of " + of + " here" + where +
         "; the paper reports 11.3 to 73.6 % over its machines.";
}

std::vector<std::string> nongemm_effects(const NongemmAnswer& answer) {
  const NongemmEffects& effects = answer.effects;
  std::vector<std::string> lines;
  if (effects.compared > 0) {
    lines.push_back(
        "Beside the paper's 11.3 to 73.6 % (its formula): " + counted(effects.within, "of ") +
        counted(effects.compared, "settings within, ") + counted(effects.below, "below, ") +
        counted(effects.above, "above."));
  }
  if (effects.int8_pairs > 0) {
    lines.push_back("int8 raises the non-GEMM share in " + counted(effects.int8_raised, "of ") +
                    counted(effects.int8_pairs, "pairs; runs are ") +
                    formatted("%.2f times as quick in the median.", effects.int8_speedup));
  }
  if (effects.int4_pairs > 0) {
    lines.push_back("int4 of weights alone raises it in " + counted(effects.int4_raised, "of ") +
                    counted(effects.int4_pairs, "pairs; runs are ") +
                    formatted("%.2f times as quick in the median.", effects.int4_speedup));
  }
  if (effects.fusion_pairs > 0) {
    lines.push_back(
        "Fusion lowers the share without removing it in " + counted(effects.fusion_lowered, "of ") +
        counted(effects.fusion_pairs, "pairs; beside the paper's 15 to 48 %: ") +
        counted(effects.fused_within, "within, ") + counted(effects.fused_below, "below, ") +
        counted(effects.fused_above, "above; runs are ") +
        formatted("%.2f times as quick in the median.", effects.fusion_speedup));
  }
  return lines;
}

std::string nongemm_text(const NongemmAnswer& answer, const std::string& folder,
                         const Terminal& terminal) {
  std::string words = nongemm_verdict(answer) + "\n";
  if (!answer.rows.empty()) words += "\n" + rows_table(answer, terminal) + legend(answer);
  const std::vector<std::string> effects = nongemm_effects(answer);
  if (!effects.empty()) words += "\n";
  for (const std::string& line : effects) words += line + "\n";
  for (const std::string& exception : answer.effects.exceptions) {
    words += "  " + text::printable(exception) + "\n";
  }
  words += refused_words(answer);
  const std::string notes = notes_of(answer);
  if (!notes.empty()) words += "\n" + notes;
  if (!folder.empty()) {
    words +=
        "Kept in " + text::printable(folder) +
        ": results.jsonl, which the same command goes on with, and traces for `headroom ops`.\n";
  }
  return words;
}

Json nongemm_json(const NongemmAnswer& answer, const std::string& folder) {
  return Json::object()
      .set("schema", "headroom.bench_nongemm/1")
      .set("machine", timing::machine_json(answer.machine))
      .set("folder", folder.empty() ? Json(nullptr) : Json(folder))
      .set("rows", text::json_array(answer.rows, nongemm_row_json))
      .set("not_measured", text::json_array(answer.refused,
                                            [](const NongemmRecord& record) {
                                              return Json::object()
                                                  .set("setting",
                                                       bench::nongemm_setting_json(record.setting))
                                                  .set("status", name_of(record.status))
                                                  .set("reason", record.reason);
                                            }))
      .set("effects", effects_json(answer.effects))
      .set("notes", text::json_array(answer.notes));
}

}  // namespace headroom::report
