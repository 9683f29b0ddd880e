#include "report/batch/text.h"

#include <algorithm>

#include "report/batch/alternatives.h"
#include "report/batch/measured_load.h"
#include "report/batch/open_load.h"
#include "report/fit/words.h"
#include "report/run_cost.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using batch::Interval;
using text::Align;
using text::formatted;
using text::Style;
using text::Table;
using text::Terminal;

std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return formatted(ms < 10 ? "%.2f" : ms < 100 ? "%.1f" : "%.0f", ms);
}

std::string percent(double share) { return formatted("%.0f %%", 100 * share); }

std::string range(const Interval& interval, std::string (*words)(double)) {
  return words(interval.low) + "-" + words(interval.high);
}

std::string times(double factor) { return formatted("%.2f x", factor); }

std::string subject(const batch::BatchAnswer& answer) {
  const batch::BatchQuestion& question = answer.question;
  std::string words = text::printable(question.model);
  if (question.device) words += (words.empty() ? "" : " on ") + question.device->name;
  if (!question.points_file.empty()) {
    words += (words.empty() ? "" : ", ") + text::printable(question.points_file);
  }
  return words;
}

std::string bound_words(const batch::BatchAnswer& answer) {
  switch (answer.advice.bound) {
    case batch::Bound::latency:
      return (answer.question.points.empty() ? "a larger one" : "the next larger one here") +
             std::string(" misses the ") + milliseconds(answer.itl_target_seconds.value_or(0)) +
             " ms that were asked for";
    case batch::Bound::efficiency:
      return "with a larger one a sequence has less than " +
             percent(answer.question.min_efficiency) + " of the throughput that it has alone";
    case batch::Bound::throughput:
      return "a larger one gives fewer tokens a second";
    case batch::Bound::engine:
      return std::string(names_of(answer.question.engine).title) + " takes no more at once";
    case batch::Bound::memory:
      return "the key-value cache holds no more";
    case batch::Bound::measured:
      return "no larger one was measured";
  }
  return {};
}

std::string opt_words(const batch::Advice& advice) {
  const std::string low = advice.low ? std::to_string(*advice.low) : "none";
  const std::string high = advice.high ? std::to_string(*advice.high) : "none";
  std::string words = std::to_string(*advice.batch);
  if (low != words || high != words) words += " (" + low + " to " + high + ")";
  return words;
}

// Nothing of a measured point whose errors are those at which every window closes (1 %: its high
// end is 1.034 times its low one).
std::string spread_words(const batch::BatchPoint& point, const Interval& figure,
                         std::string (*words)(double)) {
  constexpr double kWorthSaying = 1.04;
  const bool is_narrow = figure.high <= kWorthSaying * figure.low;
  if (point.provenance == Provenance::measured && is_narrow) return {};
  return range(figure, words);
}

std::string curve_table(const batch::BatchAnswer& answer, const Terminal& terminal) {
  Table table({{"batch", Align::right, false},
               {"in flight", Align::right, false},
               {"tokens/s", Align::right, false},
               {"90 %", Align::right, false},
               {"ITL ms", Align::right, false},
               {"90 %", Align::right, false},
               {"efficiency", Align::right, false},
               {"KV", Align::right, false},
               {"", Align::left, false}});
  for (size_t i = 0; i < answer.curve.size(); ++i) {
    const batch::BatchPoint& point = answer.curve[i].point;
    const Style style = answer.chosen == i ? Style::bold : Style::plain;
    const std::string kv = point.kv_share ? percent(*point.kv_share) : "";
    table.row(
        {{std::to_string(point.batch), style},
         {formatted("%.0f", point.running), style},
         {rate_words(point.throughput_tokens_per_second.expected), style},
         {spread_words(point, point.throughput_tokens_per_second, rate_words), style},
         {milliseconds(point.itl_seconds.expected), style},
         {spread_words(point, point.itl_seconds, milliseconds), style},
         {formatted("%.2f", answer.curve[i].efficiency.expected), style},
         {kv, style},
         {(answer.chosen == i ? "B_opt, " : "") + std::string(name_of(point.provenance)), style}});
  }
  return table.render(terminal);
}

// Each measurement of a running server, in the order in which they were made.
std::string live_table(const batch::LiveRecord& live, const Terminal& terminal) {
  Table table({{"asked at once", Align::right, false},
               {"requests", Align::right, false},
               {"failed", Align::right, false},
               {"seconds", Align::right, false},
               {"tokens/s", Align::right, false},
               {"ITL ms", Align::right, false},
               {"TTFT ms", Align::right, false},
               {"p99", Align::right, false},
               {"lag ms", Align::right, false}});
  for (const batch::LiveMeasurement& measurement : live.measurements) {
    const serving::LoadSummary& summary = measurement.summary;
    const bool has_ttft = summary.ttft.count > 0;
    table.row({std::to_string(summary.concurrency), std::to_string(summary.requests),
               std::to_string(summary.failed), formatted("%.1f", summary.window_seconds),
               rate_words(summary.throughput_tokens_per_second), milliseconds(summary.itl_seconds),
               has_ttft ? milliseconds(summary.ttft.p50) : "",
               has_ttft ? milliseconds(summary.ttft.p99) : "",
               milliseconds(summary.lag.mean_seconds)});
  }
  return table.render(terminal);
}

std::string replica_table(const batch::BatchAnswer& answer, const Terminal& terminal) {
  const auto shown = replicas_shown(answer);
  if (shown.empty()) return {};
  const bool is_chunked = answer.replicas.front().speedup_vs_chunked.has_value();
  std::vector<text::TableColumn> columns{{"replicas at B_opt", Align::left, false},
                                         {"of one", Align::right, false},
                                         {"of the largest batch", Align::right, false},
                                         {"90 %", Align::right, false}};
  if (is_chunked) columns.push_back({"with chunked prefill", Align::right, false, 1});
  columns.push_back({"ITL ms", Align::right, false});
  columns.push_back({"", Align::left, false});
  Table table(columns);
  for (const batch::Replicas* replicas : shown) {
    std::vector<text::TableCell> cells{
        {std::to_string(replicas->count) + ", " + std::string(name_of(replicas->sharing))},
        {times(replicas->speedup_vs_single.expected)},
        {times(replicas->speedup_vs_max.expected)},
        {range(replicas->speedup_vs_max, times)}};
    if (is_chunked) cells.emplace_back(times(replicas->speedup_vs_chunked->expected));
    cells.emplace_back(milliseconds(replicas->itl_seconds.expected));
    cells.emplace_back(replicas_verdict(*replicas));
    table.row(cells);
  }
  return table.render(terminal);
}

// "0.139 (0.12-0.17)".
std::string cost_words(const Interval& cost) {
  return formatted("%.3g", cost.expected) + " (" + formatted("%.3g", cost.low) + "-" +
         formatted("%.3g", cost.high) + ")";
}

std::string price_table(const batch::PriceTable& prices, const Terminal& terminal) {
  std::vector<text::TableColumn> columns{{"a million output tokens", Align::left, false},
                                         {"tokens/s a GPU", Align::right, false}};
  for (const batch::PricedMachine& machine : prices.machines) {
    columns.push_back({machine.name + ", 90 %", Align::right, false});
  }
  Table table(columns);
  for (const batch::PriceRow& row : prices.rows) {
    std::vector<text::TableCell> cells{{priced_setting(row)},
                                       {rate_words(row.throughput_tokens_per_second.expected)}};
    for (const Interval& cost : row.cost_per_million_tokens) cells.push_back({cost_words(cost)});
    table.row(cells);
  }
  std::string out = table.render(terminal);
  return out +
         text::paragraph(price_sentence(prices), 0, text::paragraph_columns(terminal.columns)) +
         "\n";
}

std::string basis(const batch::BatchAnswer& answer) {
  if (!answer.question.points.empty()) {
    return std::to_string(answer.question.points.size()) +
           " measured points; between them the step law t = a + b n through them" +
           (answer.engine_law.empty() ? "." : ", bent as the predicted steps are.");
  }
  const batch::Workload& workload = answer.workload;
  const std::string lengths = formatted("%.0f", workload.input_mean) + " tokens in and " +
                              formatted("%.0f", workload.output_mean) + " out on average";
  const std::string spread =
      !answer.question.requests.empty()
          ? ", as " + text::printable(answer.question.requests_file) + " has them"
          : ", varying by " + percent(answer.question.length_variation) + " of that";
  return "Predicted without a measurement of this device: requests of " + lengths + spread +
         ", so " + formatted("%.0f", workload.context_mean) +
         " tokens of context a sequence in flight; --points corrects it. Host and sampling as in " +
         text::printable(answer.engine_law) +
         ". Time between tokens has the prompts' reading in it; of the steps alone: headroom bench "
         "decode --predict.";
}

std::string marks(const batch::BatchAnswer& answer) {
  if (!(answer.half_point > 0)) return {};
  std::string words = "Half of what an endless batch would give comes at " +
                      formatted("%.0f", answer.half_point) +
                      " in flight, where throughput over latency is largest";
  if (answer.knee) words += "; the knee of throughput is at " + formatted("%.0f", *answer.knee);
  return words + ".";
}

// With as many in flight as the limit.
std::string closed_loop_words(const batch::BatchAnswer& answer) {
  if (answer.curve.empty()) return "the model does not fit";
  if (!answer.chosen) {
    const batch::BatchPoint& least = answer.curve.front().point;
    return "no batch meets the target; batch " + std::to_string(least.batch) + " has " +
           milliseconds(least.itl_seconds.expected) + " ms between tokens";
  }
  const batch::BatchPoint& point = answer.curve[*answer.chosen].point;
  const batch::BatchPoint& most = answer.curve[answer.largest].point;
  std::string words = "B_opt " + opt_words(answer.advice) + ": " +
                      rate_words(point.throughput_tokens_per_second.expected) + " tokens/s, " +
                      milliseconds(point.itl_seconds.expected) + " ms between tokens";
  if (*answer.chosen != answer.largest) {
    words += ", " +
             percent(point.throughput_tokens_per_second.expected /
                     most.throughput_tokens_per_second.expected) +
             " of batch " + std::to_string(most.batch);
  }
  if (answer.kv.share) words += ", with " + percent(*answer.kv.share) + " of the KV cache";
  if (answer.kv.freed) {
    words += "; " + format_bytes(*answer.kv.freed) + " set free" + on_each_gpu(answer);
  }
  return words;
}

}  // namespace

std::string on_each_gpu(const batch::BatchAnswer& answer) {
  const timing::DecodeVariant& variant = answer.question.variant;
  const int64_t gpus = variant.tensor_parallel * variant.pipeline_parallel;
  return gpus > 1 ? " on each of " + std::to_string(gpus) + " GPUs" : "";
}

std::string priced_setting(const batch::PriceRow& row) {
  return row.setting + (row.meets_target.value_or(true) ? "" : ", misses the target");
}

std::string replicas_verdict(const batch::Replicas& replicas) {
  std::string words = !replicas.fits   ? "memory not known"
                      : *replicas.fits ? "fits"
                                       : "does not fit";
  if (!replicas.meets_target.value_or(true)) words += ", misses the target";
  return words;
}

std::vector<const batch::Replicas*> replicas_shown(const batch::BatchAnswer& answer) {
  std::vector<const batch::Replicas*> shown;
  const batch::Replicas* best = nullptr;  // at best, of those that fit
  for (const batch::Replicas& replicas : answer.replicas) {
    const Interval& gain = replicas.speedup_vs_single;
    if (gain.expected > 1) shown.push_back(&replicas);
    if (gain.high <= 1 || !replicas.fits.value_or(true)) continue;
    if (best == nullptr || gain.high > best->speedup_vs_single.high) best = &replicas;
  }
  if (shown.empty() && best != nullptr) shown.push_back(best);
  return shown;
}

std::string replicas_words(const batch::BatchAnswer& answer) {
  const Interval& gap = *answer.host_gap;
  std::string words =
      gap.expected > 0
          ? "Replicas fill the " + percent(gap.expected) + " of a step in which the GPU waits"
          : "Replicas would fill a step's wait: none was seen, up to " + percent(gap.high) +
                " of a step may be one";
  words += " for the host (" + answer.host_gap_source +
           "), by a closed queueing network, in which they wait for each other; extrapolated.";
  const auto shown = replicas_shown(answer);
  if (!shown.empty() && !(shown.front()->speedup_vs_single.expected > 1)) {
    return words +
           " No number of them is expected to gain: of those that fit, the one that could most.";
  }
  std::string left_out;
  for (const batch::Replicas& replicas : answer.replicas) {
    if (std::ranges::find(shown, &replicas) != shown.end()) continue;
    left_out += (left_out.empty() ? "" : ", ") + std::to_string(replicas.count) + " by " +
                std::string(name_of(replicas.sharing));
  }
  if (!left_out.empty()) words += " No gain over one server is expected of " + left_out + ".";
  return words;
}

std::string curve_words(const batch::BatchAnswer& answer) {
  std::string words = basis(answer);
  if (answer.chosen) words += " Why not more: " + bound_words(answer) + ". " + marks(answer);
  return words;
}

std::string live_sentence(const batch::LiveRecord& live) {
  int64_t requests = 0;
  for (const batch::LiveMeasurement& measurement : live.measurements) {
    requests += measurement.summary.requests;
  }
  std::string words = "Measured on " + text::printable(live.url) + " (" + live.api + ", " +
                      text::printable(live.served_model) + ") in ";
  words += formatted("%.0f s", live.seconds) + " with " + with_commas(requests) + " requests: ";
  words += live.is_sure && live.is_named ? "of those that were named, the answer is sure."
           : live.is_sure                ? "the answer is sure."
           : live.is_stopped             ? "it was stopped before B_opt was sure."
                                         : "what is left open is within the noise of its figures.";
  return words;
}

std::string price_sentence(const batch::PriceTable& prices) {
  return hour_words(prices.machines, prices.busy) +
         "; in the currency that was given; what reads prompts is in it.";
}

std::string batch_sentence(const batch::BatchAnswer& answer) {
  if (answer.measured_load) {
    return text::printable(answer.measured_load->url) + ": " + measured_load_sentence(answer);
  }
  const std::string who = subject(answer);
  return (who.empty() ? "" : who + ": ") +
         (answer.open_load ? open_load_sentence(answer) : closed_loop_words(answer));
}

bool answers_plainly(const batch::BatchAnswer& answer) {
  if (answer.measured_load && answer.measured_load->search) {
    return answer.measured_load->search->kept.has_value();
  }
  if (answer.measured_load) {
    return std::all_of(
        answer.measured_load->loads.begin(), answer.measured_load->loads.end(),
        [](const serving::MeasuredLoad& load) { return load.summary.is_kept && !load.is_void; });
  }
  return answer.open_load ? keeps_targets(answer) : answer.chosen.has_value();
}

std::string batch_text(const batch::BatchAnswer& answer, const Terminal& terminal) {
  const Style style = answers_plainly(answer) ? Style::good : Style::bad;
  std::string out = text::paint(batch_sentence(answer), style, terminal.colour) + "\n";
  if (answer.measured_load) out += measured_load_text(answer, terminal);
  if (answer.open_load) {
    if (answer.measured_load) {
      out += "\nPredicted, " + subject(answer) + ": " + open_load_sentence(answer) + "\n";
    }
    out += open_load_text(answer, terminal);
    out += "\n" +
           text::paragraph("In a closed loop, as many always in flight as the limit: " +
                               closed_loop_words(answer) + ".",
                           0, text::paragraph_columns(terminal.columns)) +
           "\n";
  }
  if (!answer.curve.empty()) {
    out += "\n" + curve_table(answer, terminal) + "\n";
    out +=
        text::paragraph(curve_words(answer), 0, text::paragraph_columns(terminal.columns)) + "\n";
  }
  if (answer.live) {
    out += "\n" + live_table(*answer.live, terminal);
    out +=
        text::paragraph(live_sentence(*answer.live), 0, text::paragraph_columns(terminal.columns)) +
        "\n";
  }
  if (!answer.replicas.empty()) {
    out += "\n" + replica_table(answer, terminal);
    out += text::paragraph(replicas_words(answer), 0, text::paragraph_columns(terminal.columns)) +
           "\n";
  }
  out += alternatives_text(answer, terminal);
  if (answer.prices) out += "\n" + price_table(*answer.prices, terminal);
  if (!answer.commands.empty()) {
    out += "\n";
    for (const batch::Command& command : answer.commands) {
      out += command.title + ":\n  " + text::printable(command.line) + "\n";
    }
  }
  for (const std::string& note : answer.notes) {
    out += "\nnote: " + text::printable(note) + "\n";
  }
  return out;
}

}  // namespace headroom::report
