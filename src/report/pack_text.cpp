#include "report/pack_text.h"

#include "report/fit_words.h"
#include "text/number.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using text::Align;
using text::formatted;
using text::Style;
using text::Table;
using text::Terminal;

// 0.00 where there is no difference; more figures where there is a small one.
std::string gap_words(double percent) {
  return percent == 0 || percent >= 0.01 ? formatted("%.2f %%", percent)
                                         : formatted("%.1e %%", percent);
}

std::string verdict_of(const pack::PackAnswer& answer) {
  if (answer.plan.size == answer.lower_bound) return "nothing is lost";
  std::string words = gap_words(answer.plan.gap_pct) + " above what lives at the peak";
  if (answer.plan.is_optimal) words += ", and no plan is shorter";
  return words;
}

std::string first_line(const pack::PackAnswer& answer, const Terminal& terminal) {
  const Style style = answer.fits() ? Style::good : Style::bad;
  std::string line;
  if (answer.capacity) line = text::paint(answer.fits() ? "yes: " : "no: ", style, terminal.colour);
  line += text::paint(format_bytes(answer.plan.size), style, terminal.colour) + " hold the " +
          with_commas(static_cast<int64_t>(answer.requests.size())) + " requests of " +
          text::printable(answer.file) + ": " + verdict_of(answer);
  if (!answer.fits()) {
    line += "; " + with_commas(answer.plan.size.count - answer.capacity->count) +
            " bytes more than was asked for";
  }
  if (answer.recorded && answer.recorded->peak_reserved.count > 0) {
    line += "; the recorded run reserved " + format_bytes(answer.recorded->peak_reserved);
  }
  return line + "\n";
}

std::string percent(double share) { return formatted("%.1f %%", 100 * share); }

std::string allocators(const pack::PackAnswer& answer, const Terminal& terminal) {
  Table table({{"", Align::left, false},
               {"reserved", Align::right, false},
               {"used", Align::right, false},
               {"PYTORCH_CUDA_ALLOC_CONF", Align::left, false}});
  for (const pack::AllocatorFigures& figures : answer.allocators) {
    const Style style = figures.name == "planned" ? Style::bold : Style::plain;
    table.row({{figures.name, style},
               {format_bytes(figures.peak_reserved), style},
               {percent(figures.efficiency), style},
               {figures.setting, Style::dim}});
  }
  if (answer.recorded) {
    table.row({"recorded",
               format_bytes(answer.recorded->peak_reserved),
               percent(answer.recorded->efficiency),
               {"", Style::dim}});
  }
  return table.render(terminal);
}

std::string figures(const pack::PackAnswer& answer, const Terminal& terminal) {
  Table table({{"", Align::left, false}, {"", Align::right, false}, {"", Align::left, true}});
  const auto row = [&](const char* name, std::string figure, std::string note) {
    table.row({name, {std::move(figure), Style::bold}, {std::move(note), Style::dim}});
  };
  row("lower bound", format_bytes(answer.lower_bound),
      "lives at one moment, in steps of " + std::to_string(answer.alignment) + " B");
  if (answer.plan.proven_bound > answer.lower_bound) {
    row("proven bound", format_bytes(answer.plan.proven_bound), "by exact search");
  }
  row("plan", format_bytes(answer.plan.size), answer.plan.method);
  row("planned in", formatted("%.2f s", answer.plan.seconds), "");
  return table.render(terminal);
}

}  // namespace

std::string pack_text(const pack::PackAnswer& answer, const Terminal& terminal) {
  std::string lines = first_line(answer, terminal);
  lines += "\n" + figures(answer, terminal);
  lines += "\n" + allocators(answer, terminal);
  if (!answer.notes.empty()) lines += "\n";
  for (const std::string& note : answer.notes) lines += "note: " + text::printable(note) + "\n";
  return lines;
}

}  // namespace headroom::report
