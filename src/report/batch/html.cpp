#include "report/batch/html.h"

#include <algorithm>

#include "batch/replicas.h"
#include "report/batch/alternatives.h"
#include "report/batch/measured_load.h"
#include "report/batch/open_load.h"
#include "report/batch/text.h"
#include "report/fit/words.h"
#include "report/page/charts.h"
#include "report/page/curve_chart.h"
#include "text/number.h"

namespace headroom::report {
namespace {

using batch::BatchAnswer;
using batch::BatchPoint;
using batch::Interval;
using text::formatted;

std::string pace(double tokens_per_second) { return rate_words(tokens_per_second) + " tokens/s"; }

std::string milliseconds(double seconds) { return formatted("%.2f ms", seconds * 1e3); }

std::string percent(double share) { return formatted("%.0f %%", 100 * share); }

std::string range(const Interval& interval, std::string (*words)(double)) {
  return words(interval.low) + " to " + words(interval.high);
}

Section answer_section(const BatchAnswer& answer) {
  Html html;
  html.raw("<h1>Which batch?</h1>\n<p class=\"line\">").text(batch_sentence(answer));
  html.raw("</p>\n");
  if (answer.chosen) {
    const BatchPoint& point = answer.curve[*answer.chosen].point;
    if (answer.open_load || answer.measured_load) {
      html.raw("<p class=\"lead\">In a closed loop, as many always in flight as the limit:</p>\n");
    }
    html.raw("<dl class=\"tiles\">");
    const std::string low = answer.advice.low ? std::to_string(*answer.advice.low) : "none";
    const std::string high = answer.advice.high ? std::to_string(*answer.advice.high) : "none";
    tile(html, "B_opt", std::to_string(point.batch), low + " to " + high + " (90 %)");
    tile(html, "Throughput", rate_words(point.throughput_tokens_per_second.expected),
         "output tokens a second");
    tile(html, "Between tokens", milliseconds(point.itl_seconds.expected),
         answer.itl_target_seconds ? "target " + milliseconds(*answer.itl_target_seconds)
                                   : "on average");
    if (answer.kv.share) tile(html, "KV cache", percent(*answer.kv.share), "in use");
    if (answer.kv.freed)
      tile(html, "Set free", format_bytes(*answer.kv.freed), "of the cache" + on_each_gpu(answer));
    html.raw("</dl>\n");
  }
  return {"answer", "", html, answers_plainly(answer) ? "yes" : "no"};
}

// One figure of the curve, with what pointing at it says.
Curve curve_of(const BatchAnswer& answer, const std::string& key, const std::string& label,
               Interval BatchPoint::*figure, double scale, std::string (*words)(double)) {
  Curve curve{key, label, {}};
  for (const batch::CurveRow& row : answer.curve) {
    const Interval& at = row.point.*figure;
    const bool measured = row.point.provenance == Provenance::measured;
    CurvePoint point;
    point.x = static_cast<double>(row.point.batch);
    point.y = at.expected * scale;
    point.low = measured ? point.y : at.low * scale;
    point.high = measured ? point.y : at.high * scale;
    point.measured = measured;
    point.words = "batch " + std::to_string(row.point.batch) + ": " + words(at.expected) + ", " +
                  std::string(name_of(row.point.provenance));
    if (!measured) point.words += " (" + range(at, words) + ")";
    curve.points.push_back(std::move(point));
  }
  return curve;
}

std::optional<CurveMark> opt_mark(const BatchAnswer& answer) {
  if (!answer.chosen) return std::nullopt;
  const int64_t batch = answer.curve[*answer.chosen].point.batch;
  return CurveMark{static_cast<double>(batch), "B_opt " + std::to_string(batch)};
}

Html curve_table(const BatchAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < answer.curve.size(); ++i) {
    const BatchPoint& point = answer.curve[i].point;
    const bool measured = point.provenance == Provenance::measured;
    rows.push_back(
        {std::to_string(point.batch), formatted("%.0f", point.running),
         rate_words(point.throughput_tokens_per_second.expected),
         measured ? "" : range(point.throughput_tokens_per_second, rate_words),
         milliseconds(point.itl_seconds.expected),
         measured ? "" : range(point.itl_seconds, milliseconds),
         formatted("%.2f", answer.curve[i].efficiency.expected),
         point.kv_share ? percent(*point.kv_share) : "",
         (answer.chosen == i ? "B_opt, " : "") + std::string(name_of(point.provenance))});
  }
  return html_table({"#batch", "#in flight", "#tokens/s", "#90 %", "#between tokens", "#90 %",
                     "#efficiency", "#KV cache", "from"},
                    rows);
}

Section curve_section(const BatchAnswer& answer) {
  CurveChart throughput;
  throughput.description = "Output tokens a second by the limit of the batch.";
  throughput.x_label = "batch limit";
  throughput.y_label = "output tokens a second";
  throughput.curves.push_back(curve_of(answer, "parameters", "throughput",
                                       &BatchPoint::throughput_tokens_per_second, 1, pace));
  throughput.upright = opt_mark(answer);
  CurveChart latency;
  latency.description = "Mean time between tokens by the limit of the batch.";
  latency.x_label = "batch limit";
  latency.y_label = "ms between tokens";
  latency.curves.push_back(
      curve_of(answer, "logits", "between tokens", &BatchPoint::itl_seconds, 1e3, milliseconds));
  latency.upright = opt_mark(answer);
  if (answer.itl_target_seconds) {
    latency.level = CurveMark{*answer.itl_target_seconds * 1e3,
                              "target " + milliseconds(*answer.itl_target_seconds)};
  }
  Html html;
  html.raw(
      "<p class=\"lead\">Full points were measured, hollow ones are the law's or predicted; the ");
  html.raw("band is the 90 % interval. Point at one to read it.</p>\n");
  html.add(curve_chart(throughput)).add(curve_chart(latency));
  html.raw("<p class=\"soft\">").text(curve_words(answer)).raw("</p>\n");
  html.raw("<details><summary>As a table</summary>").add(curve_table(answer)).raw("</details>\n");
  return {"curve", "Throughput and latency", html, ""};
}

// Each measurement of a running server.
Section live_section(const batch::LiveRecord& live) {
  std::vector<std::vector<std::string>> rows;
  for (const batch::LiveMeasurement& measurement : live.measurements) {
    const serving::LoadSummary& summary = measurement.summary;
    const bool has_ttft = summary.ttft.count > 0;
    rows.push_back(
        {std::to_string(summary.concurrency), std::to_string(summary.requests),
         std::to_string(summary.failed), formatted("%.1f", summary.window_seconds),
         rate_words(summary.throughput_tokens_per_second), milliseconds(summary.itl_seconds),
         has_ttft ? milliseconds(summary.ttft.p50) : "",
         has_ttft ? milliseconds(summary.ttft.p99) : "", milliseconds(summary.lag.mean_seconds)});
  }
  Html html;
  html.raw("<p class=\"lead\">").text(live_sentence(live)).raw("</p>\n");
  html.add(html_table({"#asked at once", "#requests", "#failed", "#seconds", "#tokens/s",
                       "#between tokens", "#first token", "#p99", "#generator's lag"},
                      rows));
  return {"live", "What was measured", html, ""};
}

Section steps_section(const BatchAnswer& answer) {
  struct Part {
    const char* key;
    const char* label;
    double (*seconds)(const timing::DecodeStep&);
  };
  constexpr Part kParts[] = {
      {"saved_activations", "attention",
       [](const timing::DecodeStep& step) { return step.attention.time.seconds; }},
      {"parameters", "matrix products",
       [](const timing::DecodeStep& step) { return step.matmul.time.seconds; }},
      {"temporaries", "other kernels",
       [](const timing::DecodeStep& step) { return step.other.time.seconds; }},
      {"loss", "quantizing inputs",
       [](const timing::DecodeStep& step) { return step.quantize.time.seconds; }},
      {"logits", "collectives",
       [](const timing::DecodeStep& step) { return step.collectives.time.seconds; }},
      {"workspaces", "host gap", [](const timing::DecodeStep& step) { return step.host.seconds; }},
  };
  CurveChart chart;
  chart.description = "What a decode step's time is made of, by batch.";
  chart.x_label = "sequences in flight";
  chart.y_label = "share of a step, %";
  for (const Part& part : kParts) {
    // One GPU has no collectives, and 16-bit inputs are not quantized.
    const bool is_there = std::ranges::any_of(
        answer.steps, [&](const timing::DecodeStep& step) { return part.seconds(step) > 0; });
    if (!is_there) continue;
    Curve curve{part.key, part.label, {}};
    for (const timing::DecodeStep& step : answer.steps) {
      const double share = 100 * part.seconds(step) / step.parts_seconds();
      CurvePoint point{.x = static_cast<double>(step.batch),
                       .y = share,
                       .low = share,
                       .high = share,
                       .measured = false,
                       .words = {}};
      point.words = std::string(part.label) + " at batch " + std::to_string(step.batch) + ": " +
                    formatted("%.1f %%", share) + ", " + milliseconds(part.seconds(step)) +
                    ", predicted";
      curve.points.push_back(std::move(point));
    }
    chart.curves.push_back(std::move(curve));
  }
  Html html;
  html.raw(
      "<p class=\"lead\">Predicted. Attention reads the cache, which grows with the batch, and ");
  html.raw("comes to rule the step");
  const bool waits = std::ranges::any_of(
      answer.steps, [](const timing::DecodeStep& step) { return step.host.seconds > 0; });
  if (waits) html.raw("; the GPU waits in the host gap, which replicas fill");
  html.raw(".</p>\n");
  html.add(curve_chart(chart));
  return {"steps", "Where the step goes", html, ""};
}

// What a user sees against what the GPUs give.
Section frontier_section(const BatchAnswer& answer) {
  const timing::DecodeVariant& variant = answer.question.variant;
  const auto gpus = static_cast<double>(variant.tensor_parallel * variant.pipeline_parallel);
  CurveChart chart;
  chart.description = "Tokens a second of one user against those of one GPU, by batch.";
  chart.x_label = "tokens a second a user";
  chart.y_label = "tokens a second a GPU";
  Curve curve{"parameters", "by batch", {}};
  for (auto row = answer.curve.rbegin(); row != answer.curve.rend(); ++row) {
    const BatchPoint& point = row->point;
    CurvePoint at;
    at.x = 1 / point.itl_seconds.expected;
    at.y = point.throughput_tokens_per_second.expected / gpus;
    at.low = at.high = at.y;
    at.measured = point.provenance == Provenance::measured;
    at.words = "batch " + std::to_string(point.batch) + ": " + rate_words(at.x) +
               " tokens/s a user, " + rate_words(at.y) + " a GPU, " +
               std::string(name_of(point.provenance));
    curve.points.push_back(std::move(at));
  }
  chart.curves.push_back(std::move(curve));
  if (answer.chosen) {
    const BatchPoint& chosen = answer.curve[*answer.chosen].point;
    chart.upright =
        CurveMark{1 / chosen.itl_seconds.expected, "B_opt " + std::to_string(chosen.batch)};
  }
  Html html;
  html.raw("<p class=\"lead\">Small batches are on the right: few users, each fast. Point at one ");
  html.raw("to read it.</p>\n").add(curve_chart(chart));
  return {"frontier", "A user's speed against a GPU's", html, ""};
}

Section memory_section(const BatchAnswer& answer) {
  std::vector<Part> parts{{"parameters", "weights", *answer.weights},
                          {"saved_activations", "KV cache in use at B_opt", *answer.kv.needed}};
  const batch::Replicas* replicas = batch::replicas_to_start(answer);
  const int more = replicas == nullptr ? 0 : replicas->count - 1;
  Bytes rest = *answer.kv.freed;
  if (more > 0) {
    Bytes one = *answer.weights + *answer.kv.needed;
    if (answer.question.device) one += answer.question.device->context.value.expected;
    const Bytes all = std::min(one * more, rest);
    const std::string label = std::to_string(more) + (more == 1 ? " replica" : " more replicas");
    parts.push_back({"workspaces", label, all});
    rest -= all;
  }
  parts.push_back({"cached_unused", "set free", rest});
  const Limit limit{"for the engine", *answer.weights + *answer.kv.whole};
  Html html;
  html.add(stacked_bar(parts, limit)).add(legend(parts));
  return {"memory", "Memory", html, ""};
}

Section replicas_section(const BatchAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  const auto times = [](double factor) { return formatted("%.2f x", factor); };
  for (const batch::Replicas* replicas : replicas_shown(answer)) {
    rows.push_back(
        {std::to_string(replicas->count), std::string(name_of(replicas->sharing)),
         times(replicas->speedup_vs_single.expected), times(replicas->speedup_vs_max.expected),
         times(replicas->speedup_vs_max.low) + " to " + times(replicas->speedup_vs_max.high),
         replicas->speedup_vs_chunked ? times(replicas->speedup_vs_chunked->expected) : "",
         formatted("%.3g ms", replicas->itl_seconds.expected * 1e3), replicas_verdict(*replicas)});
  }
  Html html;
  html.raw("<p class=\"lead\">").text(replicas_words(answer)).raw("</p>\n");
  if (!rows.empty()) {
    html.add(html_table({"#replicas", "sharing", "#of one server", "#of the largest batch", "90 %",
                         "#of it with chunked prefill", "#between tokens", "verdict"},
                        rows));
  }
  return {"replicas", "What replicas would gain", html, ""};
}

Section prices_section(const batch::PriceTable& prices) {
  std::vector<std::string> heads{"#", "#tokens/s a GPU"};
  heads.front() = "setting";
  for (const batch::PricedMachine& machine : prices.machines) {
    heads.push_back("#" + machine.name);
    heads.emplace_back("#90 %");
  }
  std::vector<std::vector<std::string>> rows;
  for (const batch::PriceRow& row : prices.rows) {
    std::vector<std::string> cells{priced_setting(row),
                                   rate_words(row.throughput_tokens_per_second.expected)};
    for (const Interval& cost : row.cost_per_million_tokens) {
      cells.push_back(formatted("%.3g", cost.expected));
      cells.push_back(formatted("%.3g", cost.low) + " to " + formatted("%.3g", cost.high));
    }
    rows.push_back(std::move(cells));
  }
  Html html;
  html.raw("<p class=\"lead\">").text(price_sentence(prices)).raw("</p>\n");
  html.add(html_table(heads, rows));
  return {"prices", "What a million output tokens cost", html, ""};
}

Section commands_section(const BatchAnswer& answer) {
  Html html;
  for (const batch::Command& command : answer.commands) {
    html.raw("<h3>").text(command.title).raw("</h3><p><code>").text(command.line);
    html.raw("</code></p>\n");
  }
  if (!answer.notes.empty()) {
    html.raw("<h3>Notes</h3><ul class=\"notes\">");
    for (const std::string& note : answer.notes) html.raw("<li>").text(note).raw("</li>");
    html.raw("</ul>\n");
  }
  return {"commands", "How to start it", html, ""};
}

}  // namespace

std::vector<Section> batch_sections(const BatchAnswer& answer) {
  std::vector<Section> sections{answer_section(answer)};
  if (answer.measured_load) sections.push_back(measured_load_section(answer));
  if (answer.open_load) sections.push_back(open_load_section(answer));
  if (!answer.curve.empty()) sections.push_back(curve_section(answer));
  if (answer.curve.size() > 2) sections.push_back(frontier_section(answer));
  if (answer.live) sections.push_back(live_section(*answer.live));
  if (!answer.steps.empty()) sections.push_back(steps_section(answer));
  if (answer.weights && answer.kv.needed && answer.kv.freed) {
    sections.push_back(memory_section(answer));
  }
  if (!answer.replicas.empty()) sections.push_back(replicas_section(answer));
  for (Section& section : alternatives_sections(answer)) sections.push_back(std::move(section));
  if (answer.prices) sections.push_back(prices_section(*answer.prices));
  if (!answer.commands.empty() || !answer.notes.empty()) {
    sections.push_back(commands_section(answer));
  }
  return sections;
}

}  // namespace headroom::report
