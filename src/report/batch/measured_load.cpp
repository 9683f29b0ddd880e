#include "report/batch/measured_load.h"

#include <cmath>
#include <cstddef>

#include "report/batch/open_load.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using batch::OpenLoadRow;
using serving::LatencyMetric;
using serving::LatencySpread;
using serving::MeasuredLoad;
using text::Align;
using text::formatted;
using text::Json;
using text::Table;

std::string percent(double share) { return formatted("%.1f %%", 100 * share); }

// What was predicted for a rate that was measured, or null.
const OpenLoadRow* predicted(const batch::BatchAnswer& answer, const MeasuredLoad& load) {
  if (!answer.open_load) return nullptr;
  for (const OpenLoadRow& row : answer.open_load->rows) {
    if (std::abs(row.requests_per_second / load.asked_requests_per_second - 1) < 1e-9) return &row;
  }
  return nullptr;
}

std::string verdict(const MeasuredLoad& load, bool has_targets) {
  if (load.is_void) return "void";
  if (load.summary.is_saturated) return "too many";
  if (!has_targets) return "";
  return load.summary.is_kept ? "kept" : "missed";
}

using Row = std::vector<std::string>;

Row measured_row(const MeasuredLoad& load, bool has_targets) {
  const serving::OpenLoadSummary& summary = load.summary;
  const auto ms = [&](LatencyMetric metric, double LatencySpread::*figure) {
    const LatencySpread& spread = summary.of(metric);
    return spread.count > 0 ? latency_words(spread.*figure) : std::string();
  };
  return {per_second(load.asked_requests_per_second),
          "measured",
          std::to_string(summary.requests),
          std::to_string(summary.unanswered),
          ms(LatencyMetric::ttft, &LatencySpread::p50),
          ms(LatencyMetric::ttft, &LatencySpread::p95),
          ms(LatencyMetric::ttft, &LatencySpread::p99),
          ms(LatencyMetric::itl, &LatencySpread::p50),
          ms(LatencyMetric::itl, &LatencySpread::p99),
          ms(LatencyMetric::e2e, &LatencySpread::p95),
          per_second(summary.goodput_requests_per_second),
          percent(summary.attained),
          latency_words(load.send_lag.mean),
          verdict(load, has_targets)};
}

Row predicted_row(const OpenLoadRow& row) {
  const auto ms = [&](LatencyMetric metric, batch::Interval batch::LatencyIntervals::*figure) {
    return latency_words((row.of(metric).*figure).expected);
  };
  using batch::LatencyIntervals;
  return {"",
          "predicted",
          "",
          "",
          ms(LatencyMetric::ttft, &LatencyIntervals::p50),
          ms(LatencyMetric::ttft, &LatencyIntervals::p95),
          ms(LatencyMetric::ttft, &LatencyIntervals::p99),
          ms(LatencyMetric::itl, &LatencyIntervals::p50),
          ms(LatencyMetric::itl, &LatencyIntervals::p99),
          ms(LatencyMetric::e2e, &LatencyIntervals::p95),
          per_second(row.goodput_requests_per_second.expected),
          percent(row.attained.expected),
          "",
          row.is_saturated ? "too many" : ""};
}

std::vector<Row> rows_of(const batch::BatchAnswer& answer) {
  std::vector<Row> rows;
  for (const MeasuredLoad& load : answer.measured_load->loads) {
    rows.push_back(measured_row(load, !answer.measured_load->targets.empty()));
    if (const OpenLoadRow* row = predicted(answer, load)) rows.push_back(predicted_row(*row));
  }
  return rows;
}

std::string basis_words(const batch::LoadRecord& record) {
  const MeasuredLoad& load = record.loads.back();
  std::string words = "Measured on " + text::printable(record.url) + " (" + record.api + ", " +
                      text::printable(record.served_model) + ") in ";
  words += formatted("%.0f s: requests of ", record.seconds);
  words += formatted("%.0f tokens in and ", load.input_tokens_mean);
  words += formatted("%.0f out on average. ", load.output_tokens_mean);
  words +=
      "Latencies count from when a request was to be sent; the generator was so much late as lag "
      "says, which is in them.";
  for (const MeasuredLoad& one : record.loads) {
    if (!one.is_void) continue;
    words += " At " + per_second(one.asked_requests_per_second) +
             " requests/s it was too slow for what it measured: that run is void.";
  }
  const std::string hits = batch::prefix_hit_note(record.prefix_hit, load.prefix_hit_share);
  if (!hits.empty()) words += " " + text::printable(hits) + ".";
  if (!load.first_failure.empty()) {
    words += " The first failure: " + text::printable(load.first_failure) + ".";
  }
  return words;
}

Json spread_json(const LatencySpread& spread) {
  if (spread.count == 0) return nullptr;
  return Json::object()
      .set("count", spread.count)
      .set("mean_ms", spread.mean * 1e3)
      .set("p50_ms", spread.p50 * 1e3)
      .set("p90_ms", spread.p90 * 1e3)
      .set("p95_ms", spread.p95 * 1e3)
      .set("p99_ms", spread.p99 * 1e3);
}

Json load_json(const MeasuredLoad& load) {
  const serving::OpenLoadSummary& summary = load.summary;
  Json targets = Json::array();
  for (const double value : summary.at_targets) targets.push_back(value * 1e3);
  Json failures = Json::object();
  for (size_t i = 1; i < serving::kFailures; ++i) {
    if (load.failures[i] == 0) continue;
    failures.set(serving::name_of(static_cast<serving::Failure>(i)), load.failures[i]);
  }
  Json json = Json::object()
                  .set("requests_per_second", load.asked_requests_per_second)
                  .set("came_per_second", summary.requests_per_second)
                  .set("window_seconds", summary.window_seconds)
                  .set("requests", summary.requests)
                  .set("unanswered", summary.unanswered)
                  .set("sent", load.sent)
                  .set("failed", load.failed)
                  .set("failures", std::move(failures))
                  .set("is_void", load.is_void)
                  .set("is_saturated", summary.is_saturated)
                  .set("kept", summary.is_kept ? "yes" : "no")
                  .set("attained_pct", 100 * summary.attained)
                  .set("goodput_requests_per_second", summary.goodput_requests_per_second)
                  .set("throughput_tokens_per_second", summary.throughput_tokens_per_second);
  for (const LatencyMetric metric :
       {LatencyMetric::ttft, LatencyMetric::itl, LatencyMetric::tpot, LatencyMetric::e2e}) {
    json.set(serving::name_of(metric), spread_json(summary.of(metric)));
  }
  return std::move(json)
      .set("at_targets_ms", std::move(targets))
      .set("input_tokens_mean", load.input_tokens_mean)
      .set("prefix_hit_pct",
           load.prefix_hit_share ? Json(100 * *load.prefix_hit_share) : Json(nullptr))
      .set("output_tokens_mean", load.output_tokens_mean)
      .set("send_lag", spread_json(load.send_lag))
      .set("lag", Json::object()
                      .set("mean_ms", load.lag.mean_seconds * 1e3)
                      .set("p99_ms", load.lag.p99_seconds * 1e3)
                      .set("most_ms", load.lag.most_seconds * 1e3)
                      .set("busy_pct", load.lag.busy_share * 100))
      .set("provenance", name_of(Provenance::measured));
}

Json search_json(const std::optional<batch::RateSearch>& search) {
  if (!search) return nullptr;
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  return Json::object()
      .set("kept_requests_per_second", or_null(search->kept))
      .set("missed_requests_per_second", or_null(search->missed))
      .set("void_requests_per_second", or_null(search->is_void))
      .set("is_stopped", search->is_stopped);
}

// What a search came to, and between which rates it lies.
std::string search_sentence(const batch::LoadRecord& record) {
  const batch::RateSearch& search = *record.search;
  const std::string what =
      record.targets.empty() ? "is answered as fast as it comes" : "keeps the targets";
  std::string words;
  if (!search.kept && !search.missed) {
    words = "it is not known which rate " + what;
  } else if (!search.kept) {
    words = "not even " + per_second(search.missed.value_or(0)) + " requests/s " + what +
            ", the least that a window of this length shows";
  } else {
    words = "the highest rate that " + what + " is " + per_second(*search.kept) + " requests/s";
    words += search.missed ? " (" + per_second(*search.missed) + " does not)" : " at least";
  }
  if (search.is_void) {
    words += "; at " + per_second(*search.is_void) +
             " the generator itself was too slow, which ended the search";
  } else if (search.is_stopped) {
    words += ", where the search was stopped";
  }
  return words + ", measured in " + std::to_string(record.loads.size()) + " runs";
}

}  // namespace

std::string measured_load_sentence(const batch::BatchAnswer& answer) {
  const batch::LoadRecord& record = *answer.measured_load;
  if (record.search) return search_sentence(record);
  const MeasuredLoad& load = record.loads.back();
  const serving::OpenLoadSummary& summary = load.summary;
  std::string words = "at " + per_second(load.asked_requests_per_second) + " requests/s ";
  if (load.is_void) return words + "the generator was too slow: nothing is known";
  if (summary.is_saturated) words += "more come than are answered: ";
  if (record.targets.empty()) {
    words += "TTFT p95 " + latency_words(summary.of(LatencyMetric::ttft).p95) + " ms, ITL p99 " +
             latency_words(summary.of(LatencyMetric::itl).p99) + " ms";
  }
  for (size_t i = 0; i < record.targets.size(); ++i) {
    words += (i > 0 ? ", " : "") + spoken(record.targets[i]) + " " +
             latency_words(summary.at_targets[i]) + " of " +
             latency_words(record.targets[i].seconds) + " ms";
  }
  if (!record.targets.empty()) {
    words += std::string(summary.is_kept ? ": kept" : ": missed") + "; goodput " +
             per_second(summary.goodput_requests_per_second) + " requests/s, " +
             percent(summary.attained) + " of them";
  }
  return words + ", measured";
}

std::string measured_load_text(const batch::BatchAnswer& answer, const text::Terminal& terminal) {
  Table table({{"requests/s", Align::right},
               {"", Align::left},
               {"requests", Align::right, false, 3},
               {"unanswered", Align::right, false, 2},
               {"TTFT p50", Align::right, false, 1},
               {"p95", Align::right},
               {"p99", Align::right},
               {"ITL p50", Align::right, false, 1},
               {"p99", Align::right},
               {"E2E p95", Align::right},
               {"goodput", Align::right},
               {"met by", Align::right},
               {"lag", Align::right},
               {"", Align::left}});
  for (const Row& row : rows_of(answer)) table.row({row.begin(), row.end()});
  return "\nRequests as they come, by rate (ms):\n" + table.render(terminal) + "\n" +
         text::paragraph(basis_words(*answer.measured_load), 0,
                         text::paragraph_columns(terminal.columns)) +
         "\n";
}

Json measured_load_json(const batch::BatchAnswer& answer) {
  const batch::LoadRecord& record = *answer.measured_load;
  Json loads = Json::array();
  for (const MeasuredLoad& load : record.loads) loads.push_back(load_json(load));
  return Json::object()
      .set("url", record.url)
      .set("api", record.api)
      .set("served_model", record.served_model)
      .set("prefix_hit_asked_pct", 100 * record.prefix_hit)
      .set("targets", targets_json(record.targets))
      .set("seconds", record.seconds)
      .set("search", search_json(record.search))
      .set("rates", std::move(loads));
}

Section measured_load_section(const batch::BatchAnswer& answer) {
  // As in a terminal, less what is there in the JSON and would be beyond the card here.
  constexpr size_t kLeftOut[] = {10, 4, 3};  // goodput, TTFT p50, unanswered
  std::vector<Row> rows = rows_of(answer);
  for (Row& row : rows) {
    for (const size_t column : kLeftOut)
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  Html html;
  html.add(html_table({"#requests/s", "", "#requests", "#TTFT p95 ms", "#p99", "#ITL p50 ms",
                       "#p99", "#E2E p95 ms", "#met by", "#lag ms", ""},
                      rows));
  html.raw("<p>").text(basis_words(*answer.measured_load)).raw("</p>\n");
  return {"measured-load", "Requests as they come, measured", html, ""};
}

}  // namespace headroom::report
