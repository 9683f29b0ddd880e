#include "report/pack/text.h"

#include "report/fit/words.h"
#include "report/pack/iterations_text.h"
#include "report/pack/loss_text.h"
#include "report/pack/words.h"
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

// `label` goes before it.
std::string plan_line(const pack::PackAnswer& answer, std::string_view label,
                      const Terminal& terminal) {
  const Style style = answer.fits() ? Style::good : Style::bad;
  std::string line(label);
  if (answer.capacity) line = text::paint(answer.fits() ? "yes: " : "no: ", style, terminal.colour);
  line += text::printable(plan_sentence(answer, label.empty()));
  if (!answer.fits()) {
    line += "; " + with_commas(answer.plan.size.count - answer.capacity->count) +
            " bytes more than was asked for";
  }
  return line + "\n";
}

// What the recorded run lost, where the file says so; with a capacity the plan is the answer.
std::string first_lines(const pack::PackAnswer& answer, const Terminal& terminal) {
  if (!answer.loss || answer.loss->reserved.count == 0) return plan_line(answer, "", terminal);
  const std::string line =
      "recorded: " + text::paint(loss_sentence(*answer.loss), Style::bold, terminal.colour) + "\n";
  if (answer.capacity) return plan_line(answer, "", terminal) + line;
  return line + plan_line(answer, "planned:  ", terminal);
}

std::string percent(double share) { return formatted("%.1f %%", 100 * share); }

// The settings that save something, the first few of them; the defaults, expandable segments, the
// arena and the plan always.
class Settings {
 public:
  explicit Settings(const pack::PackAnswer& answer) : answer_(answer) {
    for (const pack::AllocatorFigures& figures : answer.allocators) {
      if (figures.name == "torch") default_ = figures.peak_reserved;
    }
  }

  bool shows(const pack::AllocatorFigures& figures) {
    constexpr size_t kMost = 6;
    if (figures.setting.empty() || figures.name == "torch-expandable") return true;
    const bool is_shown = default_ && figures.peak_reserved < *default_ && shown_ < kMost;
    ++(is_shown ? shown_ : left_out_);
    return is_shown;
  }

  // What to set, and what is behind the table.
  [[nodiscard]] std::string words(const Terminal& terminal) const {
    std::string lines;
    if (left_out_ > 0) {
      lines += std::to_string(left_out_) + " more settings save no more than these (--json).\n";
    }
    if (answer_.loss && answer_.recorded) {
      lines += text::paint(used_words(answer_), Style::dim, terminal.colour) + "\n";
    }
    const std::string command = setting_command(answer_);
    const std::string gain = setting_gain(answer_);
    if (gain.empty()) return lines;
    if (command.empty()) return lines + "\n" + gain + "\n";
    return lines + "\n" + text::paint(command, Style::accent, terminal.colour) + "\n  " + gain +
           "\n";
  }

 private:
  const pack::PackAnswer& answer_;
  std::optional<Bytes> default_;
  size_t shown_ = 0;
  size_t left_out_ = 0;
};

std::string allocators(const pack::PackAnswer& answer, const Terminal& terminal) {
  if (answer.recording && !answer.recording->has_history) {
    return "No allocation was recorded, so nothing tells what other settings would reserve.\n";
  }
  Settings settings(answer);
  Table table({{"", Align::left, false},
               {"reserved", Align::right, false},
               {"used", Align::right, false},
               {"PYTORCH_CUDA_ALLOC_CONF", Align::left, false}});
  for (const pack::AllocatorFigures& figures : answer.allocators) {
    if (!settings.shows(figures)) continue;
    const Style style = figures.name == "planned" ? Style::bold : Style::plain;
    table.row({{figures.name, style},
               {format_bytes(figures.peak_reserved), style},
               {percent(figures.efficiency), style},
               {setting_words(figures), Style::dim}});
  }
  if (answer.recorded) {
    table.row({"recorded",
               format_bytes(answer.recorded->peak_reserved),
               percent(answer.recorded->efficiency),
               {recorded_setting(answer), Style::dim}});
  }
  return table.render(terminal) + settings.words(terminal);
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
  std::string lines = first_lines(answer, terminal);
  if (answer.is_partial) lines += "not all of the file could be read: this is about what could\n";
  lines += "\n" + figures(answer, terminal);
  if (answer.loss) lines += "\n" + loss_text(answer, terminal);
  lines += "\n" + allocators(answer, terminal);
  if (answer.understanding && !answer.requests.empty()) {
    lines += "\n" + iterations_text(*answer.understanding, terminal);
  }
  if (!answer.notes.empty()) lines += "\n";
  for (const std::string& note : answer.notes) lines += "note: " + text::printable(note) + "\n";
  return lines;
}

}  // namespace headroom::report
