#include "report/run_cost.h"

#include <vector>

#include "report/fit/json.h"
#include "report/fit/words.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"

namespace headroom::report {

namespace {

using text::Align;
using text::formatted;
using text::Json;

// "93.3 (80.1-121)".
std::string cost_words(const fit::Cost& cost) {
  return formatted("%.3g", cost.expected) + " (" + formatted("%.3g", cost.low) + "-" +
         formatted("%.3g", cost.high) + ")";
}

// " An epoch takes about 3.2 days."
std::string epoch_words(const fit::RunCost& run) {
  if (!run.epoch_seconds) return "";
  constexpr double kDay = 86'400;
  return " An epoch takes about " + formatted("%.3g days.", run.epoch_seconds->expected / kDay);
}

}  // namespace

std::string hour_words(std::span<const device::PricedMachine> machines, double busy) {
  std::string words = "An hour of one GPU:";
  for (size_t i = 0; i < machines.size(); ++i) {
    const device::PricedMachine& machine = machines[i];
    words += (i > 0 ? "; " : " ") + machine.name + formatted(" %.3g", machine.per_hour);
    if (machine.name != "cloud") words += " (" + machine.made_of + ")";
  }
  return words + (busy < 1 ? formatted(". Busy %.0f %% of its hours", 100 * busy)
                           : std::string(". Always busy"));
}

namespace {

// Where the figures come from.
std::string source_words(const fit::RunCost& run) {
  std::vector<device::PricedMachine> machines;
  for (const fit::MachineCost& cost : run.machines) machines.push_back(cost.machine);
  return hour_words(machines, run.busy) + "; of " + with_commas(run.devices) +
         (run.devices == 1 ? " GPU" : " GPUs") + ", in the currency that was given." +
         epoch_words(run) + " OOM: the probability of out of memory, the same on either machine.";
}

std::vector<std::string> headings_of(const fit::RunCost& run) {
  std::vector<std::string> headings{"costs, 90 %",
                                    run.counts_tokens ? "a billion tokens" : "a thousand steps"};
  if (run.epoch_tokens) headings.emplace_back("an epoch");
  headings.emplace_back("OOM");
  return headings;
}

std::vector<std::string> cells_of(const fit::RunCost& run, const fit::MachineCost& cost) {
  std::vector<std::string> cells{cost.machine.name,
                                 cost_words(run.counts_tokens ? cost.of_tokens : cost.of_steps)};
  if (cost.epoch) cells.push_back(cost_words(*cost.epoch));
  cells.push_back(oom_words(run.oom_probability));
  return cells;
}

}  // namespace

std::string run_cost_text(const fit::RunCost& run, const text::Terminal& terminal) {
  std::vector<text::TableColumn> columns;
  for (std::string& heading : headings_of(run)) {
    columns.push_back({std::move(heading), columns.empty() ? Align::left : Align::right, false});
  }
  text::Table table(std::move(columns));
  for (const fit::MachineCost& cost : run.machines) {
    std::vector<text::TableCell> cells;
    for (std::string& words : cells_of(run, cost)) cells.emplace_back(std::move(words));
    table.row(std::move(cells));
  }
  return table.render(terminal) +
         text::paragraph(source_words(run), 0, text::paragraph_columns(terminal.columns)) + "\n";
}

Section run_cost_section(const fit::RunCost& run) {
  std::vector<std::string> headings = headings_of(run);
  for (size_t i = 1; i < headings.size(); ++i) headings[i].insert(0, "#");
  std::vector<std::vector<std::string>> rows;
  for (const fit::MachineCost& cost : run.machines) rows.push_back(cells_of(run, cost));
  Html html;
  html.raw("<p class=\"lead\">").text(source_words(run)).raw("</p>\n");
  html.add(html_table(headings, rows));
  return {"cost", "What it costs", html, ""};
}

Json run_cost_json(const fit::RunCost& run) {
  Json machines = Json::array();
  for (const fit::MachineCost& cost : run.machines) {
    machines.push_back(
        Json::object()
            .set("name", cost.machine.name)
            .set("price_per_hour", cost.machine.per_hour)
            .set("made_of", cost.machine.made_of)
            .set("cost_per_billion_tokens",
                 run.counts_tokens ? estimate_json(cost.of_tokens) : Json(nullptr))
            .set("cost_per_thousand_steps", estimate_json(cost.of_steps))
            .set("oom_probability", run.oom_probability)
            .set("cost_per_epoch", cost.epoch ? estimate_json(*cost.epoch) : Json(nullptr)));
  }
  return Json::object()
      .set("gpus", run.devices)
      .set("busy_pct", 100 * run.busy)
      .set("epoch_tokens", run.epoch_tokens ? Json(*run.epoch_tokens) : Json(nullptr))
      .set("epoch_seconds", run.epoch_seconds ? estimate_json(*run.epoch_seconds) : Json(nullptr))
      .set("machines", std::move(machines));
}

}  // namespace headroom::report
