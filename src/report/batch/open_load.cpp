#include "report/batch/open_load.h"

#include <algorithm>
#include <cmath>

#include "report/fit/words.h"
#include "report/page/curve_chart.h"
#include "text/ascii.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using batch::Interval;
using batch::LatencyIntervals;
using batch::OpenLoadAnswer;
using batch::OpenLoadLimit;
using batch::OpenLoadRow;
using serving::LatencyMetric;
using serving::LatencyTarget;
using text::Align;
using text::formatted;
using text::Json;
using text::Style;
using text::Table;
using text::Terminal;

constexpr LatencyMetric kMetrics[] = {LatencyMetric::ttft, LatencyMetric::itl, LatencyMetric::tpot,
                                      LatencyMetric::e2e};

std::string percent(double share) { return formatted("%.1f %%", 100 * share); }

std::string range(const Interval& interval, std::string (*words)(double)) {
  return words(interval.expected) + " (" + words(interval.low) + " to " + words(interval.high) +
         ")";
}

std::string target_words(const OpenLoadAnswer& open) {
  std::string words;
  for (const LatencyTarget& target : open.targets) {
    if (!words.empty()) words += " and ";
    words += spoken(target) + " <= " + latency_words(target.seconds) + " ms";
  }
  return words;
}

// What is kept, for the end of "up to 12 requests/s".
std::string goal_words(const batch::BatchAnswer& answer) {
  const OpenLoadAnswer& open = *answer.open_load;
  if (open.targets.empty()) return "are served as they come";
  if (const auto& attain = answer.question.open_load.attain) {
    return "have " + percent(*attain) + " of them meet " + target_words(open);
  }
  return "keep " + target_words(open);
}

std::string limit_words(const OpenLoadAnswer& open) {
  std::string words = "--max-num-seqs " + std::to_string(open.limit);
  if (open.limit_low && open.limit_high && *open.limit_low != *open.limit_high) {
    words +=
        " (" + std::to_string(*open.limit_low) + " to " + std::to_string(*open.limit_high) + ")";
  }
  return words;
}

std::string rate_words(const batch::BatchAnswer& answer, const OpenLoadRow& row) {
  const OpenLoadAnswer& open = *answer.open_load;
  std::string words = "at " + per_second(row.requests_per_second) + " requests/s ";
  if (row.is_saturated) return words + "more come than are answered";
  if (open.targets.empty()) {
    words += "TTFT p95 " + range(row.of(LatencyMetric::ttft).p95, latency_words) + " ms, ITL p99 ";
    return words + range(row.of(LatencyMetric::itl).p99, latency_words) + " ms";
  }
  for (size_t i = 0; i < open.targets.size(); ++i) {
    words += (i > 0 ? ", " : "") + spoken(open.targets[i]) + " " +
             range(row.at_targets[i], latency_words) + " ms";
  }
  words += row.kept == batch::Kept::yes  ? ": kept"
           : row.kept == batch::Kept::no ? ": missed"
           : row.is_kept_as_expected     ? ": kept, at risk"
                                         : ": missed, perhaps";
  return words;
}

std::string rates_table(const OpenLoadAnswer& open, const Terminal& terminal) {
  Table table({{"requests/s", Align::right},
               {"in batch", Align::right, false, 2},
               {"tokens/s", Align::right, false, 3},
               {"TTFT p50", Align::right, false, 1},
               {"p95", Align::right},
               {"p99", Align::right},
               {"ITL p50", Align::right, false, 1},
               {"p99", Align::right},
               {"TPOT p95", Align::right, false, 4},
               {"E2E p95", Align::right},
               {"goodput", Align::right},
               {"met by", Align::right},
               {"", Align::left}});
  for (const OpenLoadRow& row : open.rows) {
    const auto ms = [&](LatencyMetric metric, Interval LatencyIntervals::*figure) {
      return latency_words((row.of(metric).*figure).expected);
    };
    std::string verdict = row.is_saturated               ? "too many"
                          : row.kept == batch::Kept::yes ? (open.targets.empty() ? "" : "kept")
                          : row.kept == batch::Kept::no  ? "missed"
                                                         : "at risk";
    table.row({per_second(row.requests_per_second), formatted("%.1f", row.in_batch_mean),
               with_commas(static_cast<int64_t>(row.throughput_tokens_per_second.expected + 0.5)),
               ms(LatencyMetric::ttft, &LatencyIntervals::p50),
               ms(LatencyMetric::ttft, &LatencyIntervals::p95),
               ms(LatencyMetric::ttft, &LatencyIntervals::p99),
               ms(LatencyMetric::itl, &LatencyIntervals::p50),
               ms(LatencyMetric::itl, &LatencyIntervals::p99),
               ms(LatencyMetric::tpot, &LatencyIntervals::p95),
               ms(LatencyMetric::e2e, &LatencyIntervals::p95),
               per_second(row.goodput_requests_per_second.expected), percent(row.attained.expected),
               verdict});
  }
  return table.render(terminal);
}

std::string limits_table(const OpenLoadAnswer& open, const Terminal& terminal) {
  Table table({{"limit", Align::right},
               {"keeps the targets up to", Align::right},
               {"in a closed loop", Align::right},
               {"", Align::left}});
  for (const OpenLoadLimit& limit : open.by_limit) {
    if (!limit.highest_rate) continue;
    const Style style = limit.limit == open.limit ? Style::bold : Style::plain;
    table.row(
        {{std::to_string(limit.limit), style},
         {per_second(*limit.highest_rate) + " requests/s", style},
         {per_second(limit.closed_requests_per_second) + " requests/s", style},
         {limit.limit == open.limit && *limit.highest_rate > 0 ? "the smallest with the best" : "",
          style}});
  }
  return table.render(terminal);
}

std::string arrival_words(const batch::BatchAnswer& answer) {
  if (answer.open_load->arrivals != "recorded") return "as a Poisson process";
  return "as " + text::printable(answer.question.requests_file) + " has them, faster or slower";
}

// What a trace says that could not be used, and what its prompts have in common.
std::string trace_words(const batch::BatchAnswer& answer) {
  const formats::RequestTimes& times = answer.question.open_load.times;
  std::string words;
  if (!times.without_times.empty()) {
    words += " Its times are not used: " + text::printable(times.without_times) + ".";
  }
  if (!times.without_hashes.empty()) {
    words += " Its hashes of prompts are not used: " + times.without_hashes + ".";
  }
  if (!times.hashes.empty() && !answer.open_load->rows.empty()) {
    words += " Of the prompts' tokens " + percent(answer.open_load->rows.back().prompt_hit_share) +
             " are found in the cache of prefixes.";
  }
  return words;
}

std::string speculation_words(const serving::Speculation& speculation) {
  if (!speculation.is_used()) return {};
  std::string words = " Each step verifies " + std::to_string(speculation.draft_tokens) +
                      " drafted tokens of a sequence, accepted with " +
                      percent(speculation.acceptance) +
                      " each: " + formatted("%.2f tokens a step", speculation.tokens_per_step());
  return words + "; those of one step come together, and have no gaps between them.";
}

Json speculation_json(const serving::Speculation& speculation) {
  if (!speculation.is_used()) return nullptr;
  return Json::object()
      .set("draft_tokens", speculation.draft_tokens)
      .set("acceptance_pct", 100 * speculation.acceptance)
      .set("draft_pct_of_step", 100 * speculation.draft_share)
      .set("tokens_per_step", speculation.tokens_per_step());
}

// How much was simulated at each rate.
std::string extent_words(const OpenLoadAnswer& open) {
  if (!open.window_seconds) return with_commas(open.requests) + " requests a rate";
  return with_commas(open.runs) + " runs of " + formatted("%g s", *open.window_seconds) +
         " a rate, each with requests of its own";
}

std::string interval_words(const OpenLoadAnswer& open) {
  if (open.window_seconds) {
    return "The intervals hold 90 % of these runs, of which some are at either end of the steps' "
           "law.";
  }
  return std::string("The intervals are of the steps' law") +
         (open.arrivals == "recorded" ? "" : ", and of three drawings of the requests") + ".";
}

std::string basis_words(const batch::BatchAnswer& answer) {
  const OpenLoadAnswer& open = *answer.open_load;
  const batch::OpenLoadQuestion& question = answer.question.open_load;
  std::string words = "Simulated, iteration by iteration: " + extent_words(open) + ", " +
                      arrival_words(answer) + ", at most " + std::to_string(open.limit) +
                      " at once and " + std::to_string(question.max_num_batched_tokens) +
                      " tokens an iteration, ";
  words += question.has_chunked_prefill ? "long prompts in chunks" : "prompts whole";
  words += open.knows_cache ? "" : ", no limit of the cache (not known)";
  if (open.refused > 0) {
    words += "; " + std::to_string(open.refused) +
             (open.window_seconds ? " of a run at the lowest rate" : "") +
             " are longer than the cache, and refused";
  }
  words += "; prompts " + open.prompt_source + ". " + interval_words(open) + trace_words(answer) +
           speculation_words(question.speculation) + " With " + std::to_string(open.limit) +
           " always in flight it would answer " + per_second(open.closed_requests_per_second) +
           " requests/s.";
  return words;
}

Json interval_json(const Interval& interval, double scale = 1) {
  return Json::object()
      .set("low", interval.low * scale)
      .set("expected", interval.expected * scale)
      .set("high", interval.high * scale);
}

Json latency_json(const LatencyIntervals& latency) {
  return Json::object()
      .set("mean_ms", interval_json(latency.mean, 1e3))
      .set("p50_ms", interval_json(latency.p50, 1e3))
      .set("p90_ms", interval_json(latency.p90, 1e3))
      .set("p95_ms", interval_json(latency.p95, 1e3))
      .set("p99_ms", interval_json(latency.p99, 1e3));
}

Json row_json(const OpenLoadAnswer& open, const OpenLoadRow& row) {
  Json json =
      Json::object()
          .set("requests_per_second", row.requests_per_second)
          .set("is_saturated", row.is_saturated)
          .set("kept", name_of(row.kept))
          .set("attained_pct", interval_json(row.attained, 100))
          .set("goodput_requests_per_second", interval_json(row.goodput_requests_per_second))
          .set("throughput_tokens_per_second", interval_json(row.throughput_tokens_per_second))
          .set("in_batch_mean", row.in_batch_mean)
          .set("kv_most_pct", open.knows_cache ? Json(100 * row.kv_most_share) : Json(nullptr))
          .set("preemptions_per_request", row.preemptions_per_request)
          .set("tokens_per_step", row.tokens_per_step)
          .set("prompt_hit_pct", 100 * row.prompt_hit_share);
  for (const LatencyMetric metric : kMetrics) {
    json.set(serving::name_of(metric), latency_json(row.of(metric)));
  }
  Json targets = Json::array();
  for (const Interval& value : row.at_targets) targets.push_back(interval_json(value, 1e3));
  return std::move(json).set("at_targets_ms", std::move(targets));
}

CurvePoint point_of(const OpenLoadRow& row, const Interval& at, double scale,
                    const std::string& words) {
  CurvePoint point;
  point.x = row.requests_per_second;
  point.y = at.expected * scale;
  point.low = std::min(at.low * scale, point.y);
  point.high = std::max(at.high * scale, point.y);
  point.words = per_second(point.x) + " requests/s: " + words + " " + formatted("%.4g", point.y) +
                " (" + formatted("%.4g", point.low) + " to " + formatted("%.4g", point.high) +
                "), predicted";
  return point;
}

struct ChartLine {
  const char* key;
  LatencyMetric metric;
  const char* label;
  Interval LatencyIntervals::*figure;
  double serving::LatencySpread::*measured;  // the same figure of a run
};

// Runs of a server at rates, where one was driven; void ones are none.
Curve measured_curve(const ChartLine& line, const std::optional<batch::LoadRecord>& measured) {
  Curve curve{line.key, std::string(line.label) + ", measured", {}};
  if (!measured) return curve;
  for (const serving::MeasuredLoad& load : measured->loads) {
    if (load.is_void || load.summary.is_saturated) continue;
    CurvePoint point;
    point.x = load.asked_requests_per_second;
    point.y = point.low = point.high = load.summary.of(line.metric).*line.measured * 1e3;
    point.measured = true;
    point.words =
        per_second(point.x) + " requests/s: " + curve.label + formatted(", %.4g ms", point.y);
    curve.points.push_back(std::move(point));
  }
  return curve;
}

Html latency_chart(const OpenLoadAnswer& open, const std::optional<batch::LoadRecord>& measured,
                   const char* description, const char* y_label,
                   std::initializer_list<ChartLine> lines) {
  CurveChart chart;
  chart.description = description;
  chart.x_label = "requests a second";
  chart.y_label = y_label;
  chart.logarithmic_y = true;
  for (const ChartLine& line : lines) {
    Curve curve{line.key, line.label, {}};
    for (const OpenLoadRow& row : open.rows) {
      const Interval& at = row.of(line.metric).*line.figure;
      // What grows with the time that is watched is no figure of the load.
      if (row.is_saturated) continue;
      curve.points.push_back(point_of(row, at, 1e3, std::string(line.label) + " in ms,"));
    }
    chart.curves.push_back(std::move(curve));
    if (Curve runs = measured_curve(line, measured); !runs.points.empty()) {
      chart.curves.push_back(std::move(runs));
    }
    for (const LatencyTarget& target : open.targets) {
      if (target.metric != line.metric) continue;
      chart.level = CurveMark{target.seconds * 1e3,
                              spoken(target) + " " + latency_words(target.seconds) + " ms"};
    }
  }
  if (!open.targets.empty() && open.highest_rate.expected > 0) {
    chart.upright = CurveMark{open.highest_rate.expected,
                              "keeps up to " + per_second(open.highest_rate.expected)};
  }
  return curve_chart(chart);
}

Html limit_chart(const OpenLoadAnswer& open) {
  CurveChart chart;
  chart.description = "The highest rate that keeps the targets, by the limit of the batch.";
  chart.x_label = "batch limit";
  chart.y_label = "requests a second";
  Curve kept{"parameters", "keeps the targets", {}};
  Curve closed{"workspaces", "closed loop, no target", {}};
  for (const OpenLoadLimit& limit : open.by_limit) {
    const auto add = [&](Curve& curve, double value) {
      CurvePoint point{.x = static_cast<double>(limit.limit),
                       .y = value,
                       .low = value,
                       .high = value,
                       .measured = false,
                       .words = {}};
      point.words = "limit " + std::to_string(limit.limit) + ", " + curve.label + ": " +
                    per_second(value) + " requests/s, predicted";
      curve.points.push_back(std::move(point));
    };
    add(closed, limit.closed_requests_per_second);
    if (limit.highest_rate) add(kept, *limit.highest_rate);
  }
  chart.curves = {std::move(kept), std::move(closed)};
  chart.upright = CurveMark{static_cast<double>(open.limit), "best " + std::to_string(open.limit)};
  return curve_chart(chart);
}

// Near what is answered with the limit always in flight the queue grows as long as one watches.
bool is_all_it_can(const OpenLoadAnswer& open) {
  constexpr double kNearly = 0.97;
  const bool bounds_waiting = std::ranges::any_of(open.targets, [](const LatencyTarget& target) {
    return target.metric == LatencyMetric::ttft || target.metric == LatencyMetric::e2e;
  });
  return !open.targets.empty() && !bounds_waiting &&
         open.highest_rate.expected >= kNearly * open.closed_requests_per_second;
}

}  // namespace

std::string per_second(double rate) {
  return rate < 999.5 ? formatted("%.3g", rate) : with_commas(std::llround(rate));
}

std::string latency_words(double seconds) {
  const double ms = seconds * 1e3;
  if (ms >= 1e4) return with_commas(static_cast<int64_t>(ms + 0.5));
  return formatted(ms < 10 ? "%.2f" : ms < 100 ? "%.1f" : "%.0f", ms);
}

std::string spoken(const LatencyTarget& target) {
  const std::string name = text::upper(serving::name_of(target.metric));
  return name + (target.percentile > 0 ? formatted(" p%.6g", target.percentile) : " mean");
}

Json targets_json(const std::vector<LatencyTarget>& targets) {
  Json json = Json::array();
  for (const LatencyTarget& target : targets) {
    json.push_back(
        Json::object()
            .set("name", serving::name_of(target))
            .set("metric", serving::name_of(target.metric))
            .set("percentile", target.percentile > 0 ? Json(target.percentile) : Json(nullptr))
            .set("target_ms", target.seconds * 1e3));
  }
  return json;
}

std::string open_load_sentence(const batch::BatchAnswer& answer) {
  const OpenLoadAnswer& open = *answer.open_load;
  std::string words = "with " + limit_words(open) + " ";
  if (!answer.question.open_load.rates.empty()) {
    // The highest rate that was asked about is the one that is missed first.
    words += rate_words(answer, open.rows.back()) + "; ";
  }
  if (open.recorded_requests_per_second) {
    for (const OpenLoadRow& row : open.rows) {
      if (row.requests_per_second != *open.recorded_requests_per_second) continue;
      words += "as recorded, " + rate_words(answer, row) + "; ";
    }
  }
  if (!(open.highest_rate.expected > 0)) return words + "no rate keeps " + target_words(open);
  words += "up to " + range(open.highest_rate, per_second) + " requests/s " + goal_words(answer);
  if (is_all_it_can(open)) {
    words +=
        ": all that it can answer, and no target bounds how long requests wait (ttft_p95=1s, say)";
  }
  return words;
}

std::string open_load_text(const batch::BatchAnswer& answer, const Terminal& terminal) {
  const OpenLoadAnswer& open = *answer.open_load;
  std::string out = "\nRequests as they come, by rate (ms):\n" + rates_table(open, terminal);
  if (open.by_limit.size() > 1) {
    out += "\nBy limit:\n" + limits_table(open, terminal);
  }
  return out + "\n" +
         text::paragraph(basis_words(answer), 0, text::paragraph_columns(terminal.columns)) + "\n";
}

Json open_load_json(const batch::BatchAnswer& answer) {
  const OpenLoadAnswer& open = *answer.open_load;
  const batch::OpenLoadQuestion& question = answer.question.open_load;
  Json rows = Json::array();
  for (const OpenLoadRow& row : open.rows) rows.push_back(row_json(open, row));
  Json limits = Json::array();
  for (const OpenLoadLimit& limit : open.by_limit) {
    limits.push_back(Json::object()
                         .set("limit", limit.limit)
                         .set("highest_requests_per_second",
                              limit.highest_rate ? Json(*limit.highest_rate) : Json(nullptr))
                         .set("closed_loop_requests_per_second", limit.closed_requests_per_second));
  }
  Json best = nullptr;
  if (open.limit_low && open.limit_high) {
    best = Json::object()
               .set("value", open.limit)
               .set("low", *open.limit_low)
               .set("high", *open.limit_high)
               .set("level_pct", 90);
  }
  return Json::object()
      .set("limit", open.limit)
      .set("batch_opt", std::move(best))
      .set("targets", targets_json(open.targets))
      .set("attain_pct", question.attain ? Json(100 * *question.attain) : Json(nullptr))
      .set("highest_requests_per_second", interval_json(open.highest_rate))
      .set("closed_loop_requests_per_second", open.closed_requests_per_second)
      .set("is_all_it_can", is_all_it_can(open))
      .set("rates", std::move(rows))
      .set("by_limit", std::move(limits))
      .set("arrivals", open.arrivals)
      .set("recorded_requests_per_second", open.recorded_requests_per_second
                                               ? Json(*open.recorded_requests_per_second)
                                               : Json(nullptr))
      .set("simulated_requests", open.window_seconds ? Json(nullptr) : Json(open.requests))
      .set("runs", open.window_seconds ? Json(open.runs) : Json(nullptr))
      .set("window_seconds", open.window_seconds ? Json(*open.window_seconds) : Json(nullptr))
      .set("refused_requests", open.refused)
      .set("max_num_batched_tokens", question.max_num_batched_tokens)
      .set("chunked_prefill", question.has_chunked_prefill)
      .set("speculation", speculation_json(question.speculation))
      .set("prompt_source", open.prompt_source)
      .set("knows_cache", open.knows_cache)
      .set("provenance", name_of(open.provenance));
}

Section open_load_section(const batch::BatchAnswer& answer) {
  const OpenLoadAnswer& open = *answer.open_load;
  Html html;
  html.raw(
      "<p class=\"lead\">Predicted, by simulating the engine: the lines are what is expected, ");
  html.raw("the bands are 90 % intervals");
  if (answer.measured_load) html.raw("; full points were measured");
  html.raw(". Point at a point to read it.</p>\n");
  html.add(latency_chart(open, answer.measured_load,
                         "Time to the first token by the rate of requests.",
                         "ms to the first token",
                         {{"parameters", LatencyMetric::ttft, "TTFT p50", &LatencyIntervals::p50,
                           &serving::LatencySpread::p50},
                          {"logits", LatencyMetric::ttft, "TTFT p95", &LatencyIntervals::p95,
                           &serving::LatencySpread::p95}}));
  html.add(latency_chart(open, answer.measured_load, "Time between tokens by the rate of requests.",
                         "ms between tokens",
                         {{"parameters", LatencyMetric::itl, "ITL p50", &LatencyIntervals::p50,
                           &serving::LatencySpread::p50},
                          {"logits", LatencyMetric::itl, "ITL p99", &LatencyIntervals::p99,
                           &serving::LatencySpread::p99}}));
  if (open.by_limit.size() > 1) html.add(limit_chart(open));
  std::vector<std::vector<std::string>> rows;
  for (const OpenLoadRow& row : open.rows) {
    rows.push_back({per_second(row.requests_per_second), formatted("%.1f", row.in_batch_mean),
                    range(row.of(LatencyMetric::ttft).p95, latency_words),
                    range(row.of(LatencyMetric::itl).p99, latency_words),
                    range(row.of(LatencyMetric::e2e).p95, latency_words),
                    range(row.goodput_requests_per_second, per_second),
                    percent(row.attained.expected),
                    row.is_saturated ? "too many" : std::string(name_of(row.kept))});
  }
  html.raw("<details><summary>As a table</summary>");
  html.add(html_table({"#requests/s", "#in batch", "#TTFT p95 ms", "#ITL p99 ms", "#E2E p95 ms",
                       "#goodput", "#met by", "kept"},
                      rows));
  html.raw("</details>\n<p>").text(basis_words(answer)).raw("</p>\n");
  return {"open-load", "Requests as they come", html, ""};
}

bool keeps_targets(const batch::BatchAnswer& answer) {
  const OpenLoadAnswer& open = *answer.open_load;
  if (answer.question.open_load.rates.empty()) return open.highest_rate.expected > 0;
  return std::all_of(open.rows.begin(), open.rows.end(), [](const OpenLoadRow& row) {
    return row.is_kept_as_expected && !row.is_saturated;
  });
}

}  // namespace headroom::report
