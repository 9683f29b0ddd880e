#include "report/fit/text.h"

#include <algorithm>
#include <map>

#include "report/fit/words.h"
#include "report/run_cost.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

constexpr double kShownShare = 0.01;  // of a step: what the host's lateness takes is worth a line

using fit::Component;
using text::Align;
using text::Style;
using text::Table;
using text::TableColumn;
using text::Terminal;

std::string figures(const fit::FitAnswer& answer, const Terminal& terminal) {
  const fit::MemoryFigures& memory = answer.memory;
  Table table({{"", Align::left, false}, {"", Align::right, false}, {"", Align::left, true}});
  const auto row = [&](const char* name, std::string figure, std::string note) {
    table.row({name, {std::move(figure), Style::bold}, {std::move(note), Style::dim}});
  };
  row("peak allocated", format_bytes(memory.peak_allocated),
      std::string(name_of(memory.allocated_provenance)));
  if (const auto& peak = memory.peak_allocated_interval) {
    row("  at least", format_bytes(peak->low), "by what share of the tokens its experts get");
    row("  at most", format_bytes(peak->high), "");
  }
  row("peak reserved", format_bytes(memory.peak_reserved),
      std::string(name_of(memory.reserved_provenance)));
  row("device used", format_bytes(memory.device_used.expected),
      std::string(name_of(memory.device_used_provenance)));
  row("  at least", format_bytes(memory.device_used.low), "90 % interval");
  row("  at most", format_bytes(memory.device_used.high), "");
  if (answer.verdict == fit::Verdict::at_risk) {
    row("out of memory", oom_words(answer.oom_probability), "probable, " + std::string(kOomBasis));
  }
  row("device offers", format_bytes(answer.device.offered),
      std::string(name_of(answer.device.provenance)));
  row("between steps", format_bytes(memory.steady_allocated), "allocated");
  if (memory.host) row("host memory", format_bytes(memory.host->taken), host_words(*memory.host));
  if (answer.time) {
    row("step time", seconds_words(answer.time->step_seconds.expected),
        "predicted, " + seconds_interval_words(answer.time->step_seconds) + " (90 % interval)");
    const std::string pace = pace_words(*answer.time);
    if (answer.time->pipeline_seconds > 0) {
      row("of it", seconds_words(answer.time->pipeline_seconds), "that stages wait for each other");
    }
    if (answer.time->host_seconds >= kShownShare * answer.time->step_seconds.expected) {
      row("of it", seconds_words(answer.time->host_seconds), "that the host launches too late");
    }
    if (!pace.empty()) row("throughput", pace, answer.device.count > 1 ? "of all GPUs" : "");
  }
  if (answer.largest_batch) {
    row("largest batch", largest_words(*answer.largest_batch), "that fits, same length");
  }
  if (answer.longest_seq) {
    row("longest seq", largest_words(*answer.longest_seq), "that fits, same batch; in steps of 64");
  }
  return table.render(terminal);
}

std::string breakdown(const fit::FitAnswer& answer, const Terminal& terminal) {
  const fit::MemoryFigures& memory = answer.memory;
  std::string at = "Peak in " + place_words(memory.peak_at) + ".";
  if (!memory.peak_at.why.empty()) at += " " + memory.peak_at.why;
  Table table({{"", Align::left, false}, {"", Align::right, false}, {"", Align::right, false}});
  const Bytes whole = memory.breakdown.total();
  for (size_t i = 0; i < fit::kComponentCount; ++i) {
    const Bytes bytes = memory.breakdown.bytes[i];
    if (bytes.count == 0) continue;
    table.row({std::string(fit::label_of(static_cast<Component>(i))),
               format_bytes(bytes),
               {share_words(bytes, whole), Style::dim}});
  }
  return wrapped(at, terminal) + table.render(terminal);
}

std::string remedies(const fit::FitAnswer& answer, const Terminal& terminal) {
  const bool roomy = terminal.columns <= 0 || terminal.columns >= 60;
  std::vector<TableColumn> columns{{"what to change", Align::left, true},
                                   {"saves", Align::right, false},
                                   {"batch", Align::right, false}};
  if (roomy) columns.push_back({"fits", Align::left, false});
  Table table(columns);
  const size_t shown = std::min(answer.remedies.size(), kMostRemedies);
  for (size_t i = 0; i < shown; ++i) {
    const fit::Remedy& remedy = answer.remedies[i];
    std::string batch;
    if (remedy.largest_batch) {
      batch =
          (remedy.largest_batch->at_bound ? ">= " : "") + with_commas(remedy.largest_batch->value);
    }
    std::vector<text::TableCell> cells{remedy.flag.empty() ? remedy.title : remedy.flag,
                                       format_bytes(remedy.saves), std::move(batch)};
    if (roomy) {
      cells.emplace_back(std::string(verdict_word(remedy.verdict)), verdict_style(remedy.verdict));
    }
    table.row(std::move(cells));
  }
  std::string lines = table.render(terminal);
  if (shown < answer.remedies.size()) {
    lines += wrapped("and " + std::to_string(answer.remedies.size() - shown) +
                         " more, with how to make each change, in --html FILE and --json",
                     terminal);
  }
  return lines;
}

// The stages of a pipeline, of which the others' figures are not shown.
std::string stages(const fit::FitAnswer& answer, const Terminal& terminal) {
  Table table({{"stage", Align::right, false},
               {"layers", Align::right, false},
               {"in flight", Align::right, false},
               {"peak allocated", Align::right, false},
               {"device used", Align::right, false},
               {"fits", Align::left, false}});
  for (const fit::StageFigures& stage : answer.stages) {
    table.row({with_commas(stage.stage),
               with_commas(stage.layers),
               text::formatted("%.4g", stage.in_flight),
               format_bytes(stage.peak_allocated),
               format_bytes(stage.device_used.expected),
               {std::string(verdict_word(stage.verdict)), verdict_style(stage.verdict)}});
  }
  return table.render(terminal) +
         wrapped(
             "The rest is of the stage that needs most. In flight: micro-batches whose "
             "activations a stage holds at the most.",
             terminal);
}

// Changes to the pipeline as a whole, with what the step then takes.
std::string moves(const fit::FitAnswer& answer, const Terminal& terminal) {
  Table table({{"what to move", Align::left, true},
               {"saves", Align::right, false},
               {"step", Align::right, false},
               {"fits", Align::left, false}});
  std::string how;
  for (const fit::PipelineMove& move : answer.moves) {
    table.row({move.title,
               format_bytes(move.saves),
               move.time ? seconds_words(move.time->step_seconds.expected) : "",
               {std::string(verdict_word(move.verdict)), verdict_style(move.verdict)}});
    how += wrapped(move.title + ": " + move.how, terminal, 2);
  }
  return table.render(terminal) + how;
}

std::string notes(std::string_view kind, const std::vector<std::string>& lines,
                  const Terminal& terminal) {
  std::string all;
  for (const std::string& line : lines) {
    all += wrapped(std::string(kind) + ": " + line, terminal, 2);
  }
  return all;
}

}  // namespace

std::string fit_text(const fit::FitAnswer& answer, const Terminal& terminal) {
  std::string lines = verdict_line(answer.verdict, answer_sentence(answer), terminal);
  lines += "\n" + figures(answer, terminal);
  if (answer.cost) lines += "\n" + run_cost_text(*answer.cost, terminal);
  if (!answer.stages.empty()) lines += "\n" + stages(answer, terminal);
  if (!answer.moves.empty()) lines += "\n" + moves(answer, terminal);
  lines += "\n" + breakdown(answer, terminal);
  if (!answer.remedies.empty()) lines += "\n" + remedies(answer, terminal);
  std::string written;
  for (const fit::Emitted& emitted : answer.emitted) {
    for (const std::string& line : emitted_words(emitted)) {
      written += wrapped(line, terminal, 2);
    }
  }
  const std::string remarks = written + notes("note", answer.notes, terminal) +
                              notes("assumed", answer.assumptions, terminal) +
                              notes("warning", answer.warnings, terminal);
  if (!remarks.empty()) lines += "\n" + remarks;
  return lines;
}

// The commonest reasons, each with how many figures it left out.
std::vector<std::string> reasons_of(const fit::AgainstAnswer& answer) {
  constexpr size_t kShown = 5;
  std::map<std::string, int64_t> counts;
  for (const fit::AgainstRow& row : answer.rows) {
    if (!row.supported) ++counts[row.reason];
  }
  std::vector<std::pair<int64_t, std::string>> by_count;
  for (const auto& [reason, count] : counts) by_count.emplace_back(-count, reason);
  std::ranges::sort(by_count);
  std::vector<std::string> lines;
  for (size_t i = 0; i < by_count.size() && i < kShown; ++i) {
    lines.push_back(by_count[i].second + " (" + std::to_string(-by_count[i].first) + ")");
  }
  if (by_count.size() > kShown) {
    lines.push_back(std::to_string(by_count.size() - kShown) + " more reasons, by row in --json");
  }
  return lines;
}

std::string against_text(const fit::AgainstAnswer& answer, const Terminal& terminal) {
  const auto supported = std::count_if(answer.rows.begin(), answer.rows.end(),
                                       [](const fit::AgainstRow& row) { return row.supported; });
  std::string lines = wrapped(
      std::to_string(supported) + " of " + std::to_string(answer.rows.size()) + " figures of " +
          answer.file + " modelled, " +
          std::to_string(static_cast<int64_t>(answer.rows.size()) - supported) + " unsupported",
      terminal);
  Table table({{"source", Align::left, true},
               {"metric", Align::left, true},
               {"rows", Align::right, false},
               {"median", Align::right, false},
               {"p90", Align::right, false},
               {"worst", Align::right, false},
               {"row", Align::left, false},
               {"in interval", Align::right, false}});
  for (const fit::AgainstSummary& line : answer.summary) {
    table.row({line.source, line.metric,
               std::to_string(line.supported) + "/" + std::to_string(line.rows),
               size_words(line.median_pct), size_words(line.p90_pct), size_words(line.worst_pct),
               line.worst_id, size_words(line.covered_pct)});
  }
  lines += "\n" + table.render(terminal);
  if (!answer.calibration.empty()) {
    lines += "\n" + wrapped("corrected by " + answer.calibration, terminal);
  }
  return lines + notes("unsupported", reasons_of(answer), terminal) +
         notes("learned", answer.learned, terminal) + notes("warning", answer.warnings, terminal);
}

}  // namespace headroom::report
