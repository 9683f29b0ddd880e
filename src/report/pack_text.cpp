#include "report/pack_text.h"

#include <algorithm>

#include "report/fit_words.h"
#include "report/loss_text.h"
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

std::string plan_line(const pack::PackAnswer& answer, const Terminal& terminal) {
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
  return line + "\n";
}

// What the recorded run lost, where the file says so; with a capacity the plan is the answer.
std::string first_lines(const pack::PackAnswer& answer, const Terminal& terminal) {
  const std::string plan = plan_line(answer, terminal);
  if (!answer.loss || answer.loss->reserved.count == 0) return plan;
  const pack::LossAtPeak& loss = *answer.loss;
  std::string line =
      text::paint(share_words(loss.lost(), loss.reserved), Style::bold, terminal.colour) + " of " +
      format_bytes(loss.reserved) + " reserved was lost to fragmentation (" +
      format_bytes(loss.lost()) + ")";
  if (loss.failure) {
    line += " when memory ran out";
  } else {
    line += " at the peak";
  }
  line += "\n";
  return answer.capacity ? plan + line : line + plan;
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
    const auto best = std::find_if(
        answer_.allocators.begin(), answer_.allocators.end(),
        [](const pack::AllocatorFigures& figures) { return !figures.setting.empty(); });
    if (!default_ || best == answer_.allocators.end() || best->peak_reserved >= *default_) {
      return lines;
    }
    lines += "\n" + text::paint("export PYTORCH_CUDA_ALLOC_CONF=" + best->setting, Style::accent,
                                terminal.colour);
    lines += "\n  reserves " + format_bytes(*default_ - best->peak_reserved) +
             " less than the default settings";
    if (best->limit) {
      lines += "; garbage collection needs a limit, here " + format_bytes(*best->limit) +
               " by torch.cuda.set_per_process_memory_fraction";
    }
    return lines + "\n";
  }

 private:
  const pack::PackAnswer& answer_;
  std::optional<Bytes> default_;
  size_t shown_ = 0;
  size_t left_out_ = 0;
};

std::string setting_words(const pack::AllocatorFigures& figures) {
  if (figures.name == "best-fit-arena") return "a yardstick: one growing range, best fit";
  if (!figures.limit) return figures.setting;
  return figures.setting + " (limit " + format_bytes(*figures.limit) + ")";
}

std::string allocators(const pack::PackAnswer& answer, const Terminal& terminal) {
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
               {"", Style::dim}});
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
  lines += "\n" + figures(answer, terminal);
  if (answer.loss) lines += "\n" + loss_text(answer, terminal);
  lines += "\n" + allocators(answer, terminal);
  if (!answer.notes.empty()) lines += "\n";
  for (const std::string& note : answer.notes) lines += "note: " + text::printable(note) + "\n";
  return lines;
}

}  // namespace headroom::report
