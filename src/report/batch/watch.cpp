#include "report/batch/watch.h"

#include <cmath>

#include "text/json_parts.h"
#include "text/number.h"

namespace headroom::report {
namespace {

using batch::Interval;
using batch::WatchFigures;
using batch::WatchReport;
using text::formatted;
using text::Json;
using text::or_null;

std::string milliseconds(double seconds) { return formatted("%.3g ms", seconds * 1e3); }
std::string rate(double tokens) { return formatted("%.0f tokens/s", tokens); }

std::string signed_percent(double ratio) { return formatted("%+.0f %%", 100 * (ratio - 1)); }

std::string limit_words(const std::optional<int64_t>& limit) {
  return limit.value_or(0) > 0 ? std::to_string(*limit) : std::string("none");
}

std::string interval_words(const batch::Advice& advice) {
  return "90 % interval " + limit_words(advice.low) + " to " + limit_words(advice.high);
}

// "31.0 ms between tokens (29.1 to 33.0), 3097 tokens/s"
std::string figures_words(const WatchFigures& figures) {
  std::string words = milliseconds(figures.itl_seconds.expected);
  words += formatted(" (%.3g", figures.itl_seconds.low * 1e3);
  words += formatted(" to %.3g) between tokens, ", figures.itl_seconds.high * 1e3);
  return words + rate(figures.throughput_tokens_per_second.expected);
}

std::string present_words(const WatchReport& report) {
  std::string words = formatted("now %.3g in flight, ", report.in_flight);
  words += milliseconds(report.itl_seconds) + ", " + rate(report.throughput_tokens_per_second);
  if (report.prompt_tokens_mean && report.output_tokens_mean) {
    words += formatted(", prompts of %.0f", *report.prompt_tokens_mean);
    words += formatted(" and answers of %.0f tokens", *report.output_tokens_mean);
  }
  return words;
}

// What the new limit gives beside the old one, with as many in flight as each allows.
std::string gain_words(const WatchReport& report) {
  if (!report.at_opt || !report.at_limit) return {};
  const WatchFigures& after = *report.at_opt;
  const WatchFigures& before = *report.at_limit;
  std::string words = "it pays " + signed_percent(after.throughput_tokens_per_second.expected /
                                                  before.throughput_tokens_per_second.expected);
  words += " throughput and ";
  words += signed_percent(after.itl_seconds.expected / before.itl_seconds.expected);
  words += " time between tokens where as many requests come";
  const bool is_larger = report.advice.batch.value_or(0) > report.limit.value_or(0);
  if (is_larger && report.waiting.value_or(1) < 1) words += "; none waits now";
  return words;
}

std::string cache_words(const WatchReport& report) {
  if (!report.at_opt || !report.at_opt->kv_share || *report.at_opt->kv_share <= 1) return {};
  return formatted("; its key-value cache would be %.0f %% full: requests would be preempted",
                   100 * *report.at_opt->kv_share);
}

Json interval_json(const Interval& interval, double scale = 1) {
  return Json::object()
      .set("low", interval.low * scale)
      .set("expected", interval.expected * scale)
      .set("high", interval.high * scale);
}

Json figures_json(const std::optional<int64_t>& limit, const std::optional<WatchFigures>& figures) {
  if (!figures) return nullptr;
  return Json::object()
      .set("batch", or_null(limit))
      .set("throughput_tokens_per_second", interval_json(figures->throughput_tokens_per_second))
      .set("itl_ms", interval_json(figures->itl_seconds, 1e3))
      .set("kv_pct", or_null(figures->kv_share, 100));
}

Json present_json(const WatchReport& report) {
  return Json::object()
      .set("in_flight_mean", report.in_flight)
      .set("engines", report.engines)
      .set("itl_ms", report.itl_seconds * 1e3)
      .set("throughput_tokens_per_second", report.throughput_tokens_per_second)
      .set("waiting", or_null(report.waiting))
      .set("kv_pct", or_null(report.kv_share, 100))
      .set("preemptions", or_null(report.preemptions))
      .set("input_tokens_mean", or_null(report.prompt_tokens_mean))
      .set("output_tokens_mean", or_null(report.output_tokens_mean));
}

// A value of a label: what Prometheus' text wants escaped, and nothing that would end the line.
std::string label(const std::string& value) {
  std::string quoted;
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  return quoted;
}

}  // namespace

std::string watch_line(const WatchReport& report) {
  const batch::Advice& advice = report.advice;
  if (report.event == batch::WatchEvent::change) {
    std::string words = "change the batch limit from " + limit_words(report.limit) + " to " +
                        limit_words(advice.batch) + " (" + interval_words(advice) + "): ";
    if (!advice.batch) {
      return words + "no batch meets the target under this traffic; " + present_words(report) +
             "\n";
    }
    words += figures_words(*report.at_opt) + cache_words(report);
    const std::string gain = gain_words(report);
    if (!gain.empty()) words += "; " + gain;
    return words + "; " + present_words(report) + "\n";
  }
  if (!advice.batch) {
    return "no batch meets the target under this traffic; " + present_words(report) + "\n";
  }
  std::string words = "B_opt " + limit_words(advice.batch) + " (" + interval_words(advice) + "): ";
  words += figures_words(*report.at_opt) + cache_words(report);
  if (report.limit && report.limit != advice.batch) {
    words += "; the limit of " + limit_words(report.limit) + " is not surely wrong";
  }
  return words + "; " + present_words(report) + "\n";
}

Json watch_json(const WatchReport& report, const WatchContext& context) {
  Json json = Json::object()
                  .set("schema", "headroom.batch.watch/1")
                  .set("url", context.url)
                  .set("unix_seconds", context.unix_seconds)
                  .set("watched_seconds", report.seconds)
                  .set("event", name_of(report.event))
                  .set("changes", context.changes)
                  .set("present", present_json(report));
  if (!report.is_known) return std::move(json).set("batch_opt", nullptr);
  return std::move(json)
      .set("batch_opt", Json::object()
                            .set("value", or_null(report.advice.batch))
                            .set("low", or_null(report.advice.low))
                            .set("high", or_null(report.advice.high))
                            .set("level_pct", 90.0))
      .set("bound", batch::name_of(report.advice.bound))
      .set("itl_target_ms", or_null(report.itl_target_seconds, 1e3))
      .set("limit", or_null(report.limit))
      .set("limit_after", or_null(report.limit_after))
      .set("at_batch_opt", figures_json(report.advice.batch, report.at_opt))
      .set("at_limit", figures_json(report.limit, report.at_limit))
      .set("evidence_down", report.evidence_down)
      .set("evidence_up", report.evidence_up)
      .set("noise_pct", 100 * report.noise)
      .set("excess_us_per_sequence", report.excess_seconds * 1e6)
      .set("law", Json::object()
                      .set("source", report.source)
                      .set("provenance", name_of(report.provenance)));
}

std::string watch_prometheus(const WatchReport& report, const WatchContext& context) {
  const std::string labels = "{url=\"" + label(context.url) + "\"} ";
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help, double value) {
    if (!std::isfinite(value)) return;
    text += "# HELP headroom_batch_" + std::string(name) + " " + help + "\n";
    text += "# TYPE headroom_batch_" + std::string(name) + " " + type + "\n";
    text += "headroom_batch_" + std::string(name) + labels + formatted("%.10g", value) + "\n";
  };
  add("changes_total", "counter", "Changes of the batch limit that were said.",
      static_cast<double>(context.changes));
  add("evaluated_timestamp_seconds", "gauge", "When this was evaluated.", context.unix_seconds);
  add("in_flight", "gauge", "Sequences in flight in one engine, mean.", report.in_flight);
  add("itl_seconds", "gauge", "Mean time between tokens.", report.itl_seconds);
  add("tokens_per_second", "gauge", "Output tokens behind the first of each answer.",
      report.throughput_tokens_per_second);
  if (!report.is_known) return text;
  const auto limit = [](const std::optional<int64_t>& value) {
    return static_cast<double>(value.value_or(0));
  };
  add("opt", "gauge", "Best batch limit; 0: none meets the target.", limit(report.advice.batch));
  add("opt_low", "gauge", "Low end of its 90 % interval.", limit(report.advice.low));
  add("opt_high", "gauge", "High end of its 90 % interval.", limit(report.advice.high));
  add("limit", "gauge", "Batch limit that counts as being in force.", limit(report.limit_after));
  if (report.at_opt) {
    add("opt_itl_seconds", "gauge", "Mean time between tokens with so many in flight.",
        report.at_opt->itl_seconds.expected);
    add("opt_tokens_per_second", "gauge", "Output tokens with so many in flight.",
        report.at_opt->throughput_tokens_per_second.expected);
  }
  return text;
}

}  // namespace headroom::report
