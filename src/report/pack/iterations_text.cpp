#include "report/pack/iterations_text.h"

#include "report/fit/words.h"
#include "text/number.h"
#include "text/table.h"

namespace headroom::report {
namespace {

using text::Align;
using text::Style;
using text::Table;
using text::Terminal;

std::string percent(double share) { return text::formatted("%.1f %%", 100 * share); }

}  // namespace

std::string iterations_text(const pack::Understanding& found, const Terminal& terminal) {
  if (found.iterations.whole.empty()) {
    return "Nothing in the recording repeats: with two iterations or more it would show what "
           "varies, and how a\nplan made from some of them serves the others.\n";
  }
  const auto count = [](size_t number) { return with_commas(static_cast<int64_t>(number)); };
  Table table({{"", Align::left, false}, {"", Align::right, false}, {"", Align::left, true}});
  const auto row = [&](const char* name, std::string figure, std::string note) {
    table.row({name, {std::move(figure), Style::bold}, {std::move(note), Style::dim}});
  };
  const bool has_marks = found.iterations.source == memory::BoundarySource::marks;
  std::string kinds = has_marks ? "by the recording's marks" : "by the sequence of requests";
  if (found.iterations.kinds > 1) {
    kinds += ", of " + std::to_string(found.iterations.kinds) + " kinds";
  }
  const memory::Iteration& middle = found.iterations.whole[found.iterations.whole.size() / 2];
  row("iterations", count(found.iterations.whole.size()),
      "of some " + count(middle.end - middle.begin) + " requests, found " + kinds);
  using memory::Recurrence;
  const auto lifespans = [&](Recurrence recurrence) {
    const auto& by_lifespan = found.counts[static_cast<size_t>(recurrence)];
    return count(by_lifespan[0]) + " persistent, " + count(by_lifespan[1]) + " scoped, " +
           count(by_lifespan[2]) + " transient";
  };
  row("static requests", count(found.count(Recurrence::fixed)), lifespans(Recurrence::fixed));
  row("dynamic requests", count(found.count(Recurrence::dynamic)), lifespans(Recurrence::dynamic));
  row("recorded once", count(found.count(Recurrence::once)), lifespans(Recurrence::once));
  if (found.shares_streams()) {
    row("their plan", format_bytes(Bytes(found.plan->bytes)),
        "with memory of one stream for another where the program has them wait; apart they need " +
            format_bytes(Bytes(found.apart_bytes)));
  }
  if (found.held_out && found.held_out->requests > 0) {
    const memory::PlanScore& score = *found.held_out;
    row("held-out plan", percent(score.efficiency()),
        "used, in " + count(score.iterations) +
            (score.iterations == 1 ? " iteration" : " iterations") +
            " it was not made from; requests " + percent(score.share(score.planned)) +
            " planned, " + percent(score.share(score.reused)) + " in reused space, " +
            percent(score.share(score.fallen_back)) + " fallen back");
  }
  return table.render(terminal);
}

}  // namespace headroom::report
