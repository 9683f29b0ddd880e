#include "report/batch/json.h"

#include "report/batch/alternatives.h"
#include "report/batch/measured_load.h"
#include "report/batch/open_load.h"
#include "text/json_parts.h"

namespace headroom::report {

using text::Json;
using text::or_null;

namespace {

Json interval_json(const batch::Interval& interval, double scale = 1) {
  return Json::object()
      .set("low", interval.low * scale)
      .set("expected", interval.expected * scale)
      .set("high", interval.high * scale);
}

Json row_json(const batch::CurveRow& row) {
  const batch::BatchPoint& point = row.point;
  return Json::object()
      .set("batch", point.batch)
      .set("running_mean", point.running)
      .set("throughput_tokens_per_second", interval_json(point.throughput_tokens_per_second))
      .set("itl_ms", interval_json(point.itl_seconds, 1e3))
      .set("efficiency", interval_json(row.efficiency))
      .set("kv_pct", or_null(point.kv_share, 100))
      .set("provenance", name_of(point.provenance));
}

Json step_json(const timing::DecodeStep& step) {
  return Json::object()
      .set("batch", step.batch)
      .set("attention_ms", step.attention.time.seconds * 1e3)
      .set("matmul_ms", step.matmul.time.seconds * 1e3)
      .set("other_ms", step.other.time.seconds * 1e3)
      .set("quantize_ms", step.quantize.time.seconds * 1e3)
      .set("collectives_ms", step.collectives.time.seconds * 1e3)
      .set("host_gap_ms", step.host.seconds * 1e3)
      .set("provenance", name_of(Provenance::extrapolated));
}

Json cache_json(const batch::KvCache& kv) {
  return Json::object()
      .set("needed_pct", or_null(kv.share, 100))
      .set("needed_bytes", or_null(kv.needed))
      .set("freed_bytes", or_null(kv.freed))
      .set("whole_bytes", or_null(kv.whole))
      .set("provenance", kv.share ? Json(name_of(kv.provenance)) : Json(nullptr));
}

// How far the prediction was off at B_opt, where points say; what is predicted was scaled by it.
Json prediction_error_json(const std::optional<batch::Correction>& correction) {
  if (!correction) return nullptr;
  return Json::object()
      .set("throughput_pct", 100 * (1 / correction->throughput - 1))
      .set("itl_pct", 100 * (1 / correction->itl - 1));
}

Json replicas_json(const std::vector<batch::Replicas>& all) {
  Json list = Json::array();
  for (const batch::Replicas& replicas : all) {
    list.push_back(Json::object()
                       .set("count", static_cast<int64_t>(replicas.count))
                       .set("sharing", name_of(replicas.sharing))
                       .set("speedup_vs_single", replicas.speedup_vs_single.expected)
                       .set("speedup_vs_single_interval", interval_json(replicas.speedup_vs_single))
                       .set("speedup_vs_max", replicas.speedup_vs_max.expected)
                       .set("speedup_vs_max_interval", interval_json(replicas.speedup_vs_max))
                       .set("speedup_vs_chunked", replicas.speedup_vs_chunked
                                                      ? interval_json(*replicas.speedup_vs_chunked)
                                                      : Json(nullptr))
                       .set("itl_ms", interval_json(replicas.itl_seconds, 1e3))
                       .set("fits", or_null(replicas.fits))
                       .set("meets_target", or_null(replicas.meets_target))
                       .set("provenance", name_of(Provenance::extrapolated)));
  }
  return list;
}

Json commands_json(const std::vector<batch::Command>& commands) {
  Json list = Json::array();
  for (const batch::Command& command : commands) {
    list.push_back(Json::object().set("title", command.title).set("command", command.line));
  }
  return list;
}

Json prices_json(const std::optional<batch::PriceTable>& prices) {
  if (!prices) return nullptr;
  Json machines = Json::array();
  for (const batch::PricedMachine& machine : prices->machines) {
    machines.push_back(Json::object()
                           .set("name", machine.name)
                           .set("price_per_hour", machine.per_hour)
                           .set("made_of", machine.made_of));
  }
  Json rows = Json::array();
  for (const batch::PriceRow& row : prices->rows) {
    Json costs = Json::object();
    for (size_t i = 0; i < prices->machines.size(); ++i) {
      costs.set(prices->machines[i].name, interval_json(row.cost_per_million_tokens[i]));
    }
    rows.push_back(Json::object()
                       .set("setting", row.setting)
                       .set("throughput_tokens_per_second_per_gpu",
                            interval_json(row.throughput_tokens_per_second))
                       .set("meets_target", or_null(row.meets_target))
                       .set("cost_per_million_output_tokens", std::move(costs)));
  }
  return Json::object()
      .set("busy_pct", 100 * prices->busy)
      .set("machines", std::move(machines))
      .set("rows", std::move(rows));
}

// Milliseconds; null where nothing was observed.
Json spread_json(const serving::Spread& spread) {
  if (spread.count == 0) return nullptr;
  return Json::object()
      .set("count", spread.count)
      .set("mean_ms", spread.mean * 1e3)
      .set("p50_ms", spread.p50 * 1e3)
      .set("p90_ms", spread.p90 * 1e3)
      .set("p99_ms", spread.p99 * 1e3);
}

Json failures_json(const serving::LoadSummary& summary) {
  Json failures = Json::object();
  for (size_t i = 1; i < serving::kFailures; ++i) {
    if (summary.failures[i] == 0) continue;
    failures.set(name_of(static_cast<serving::Failure>(i)), summary.failures[i]);
  }
  return failures;
}

Json measurement_json(const batch::LiveMeasurement& measurement) {
  const serving::LoadSummary& summary = measurement.summary;
  return Json::object()
      .set("batch", measurement.point.batch)
      .set("concurrency", summary.concurrency)
      .set("window_seconds", summary.window_seconds)
      .set("requests", summary.requests)
      .set("finished", summary.finished)
      .set("failed", summary.failed)
      .set("failures", failures_json(summary))
      .set("ended_early", summary.ended_early)
      .set("running_mean", summary.running_mean)
      .set("throughput_tokens_per_second", summary.throughput_tokens_per_second)
      .set("throughput_error_pct", summary.throughput_error * 100)
      .set("itl_ms", summary.itl_seconds * 1e3)
      .set("itl_error_pct", summary.itl_error * 100)
      .set("tokens_per_chunk", summary.tokens_per_chunk)
      .set("prefix_hit_pct", or_null(summary.prefix_hit_share, 100))
      .set("ttft", spread_json(summary.ttft))
      .set("first_visible", spread_json(summary.first_visible))
      .set("itl_chunks", spread_json(summary.itl_chunks))
      .set("tpot", spread_json(summary.tpot))
      .set("e2e", spread_json(summary.e2e))
      .set("lag", Json::object()
                      .set("mean_ms", summary.lag.mean_seconds * 1e3)
                      .set("p99_ms", summary.lag.p99_seconds * 1e3)
                      .set("most_ms", summary.lag.most_seconds * 1e3)
                      .set("busy_pct", summary.lag.busy_share * 100))
      .set("server", Json::object()
                         .set("running_mean", or_null(summary.server_running))
                         .set("waiting_mean", or_null(summary.server_waiting))
                         .set("kv_most_pct", or_null(summary.kv_share, 100)));
}

Json live_json(const std::optional<batch::LiveRecord>& live) {
  if (!live) return nullptr;
  Json measurements = Json::array();
  int64_t requests = 0;
  for (const batch::LiveMeasurement& measurement : live->measurements) {
    measurements.push_back(measurement_json(measurement));
    requests += measurement.summary.requests;
  }
  return Json::object()
      .set("url", live->url)
      .set("api", live->api)
      .set("served_model", live->served_model)
      .set("prefix_hit_asked_pct", 100 * live->prefix_hit)
      .set("is_sure", live->is_sure)
      .set("is_stopped", live->is_stopped)
      .set("seconds", live->seconds)
      .set("requests", requests)
      .set("measurements", std::move(measurements));
}

}  // namespace

Json batch_json(const batch::BatchAnswer& answer) {
  const batch::BatchQuestion& question = answer.question;
  Json rows = Json::array();
  for (const batch::CurveRow& row : answer.curve) rows.push_back(row_json(row));
  Json steps = Json::array();
  for (const timing::DecodeStep& step : answer.steps) steps.push_back(step_json(step));
  const batch::BatchPoint* chosen = answer.chosen ? &answer.curve[*answer.chosen].point : nullptr;
  Json throughput = nullptr;
  Json itl = nullptr;
  if (chosen != nullptr) {
    throughput = chosen->throughput_tokens_per_second.expected;
    itl = chosen->itl_seconds.expected * 1e3;
  }
  Json target = nullptr;
  if (answer.itl_target_seconds) target = *answer.itl_target_seconds * 1e3;
  return Json::object()
      .set("schema", "headroom.batch/1")
      .set("model", question.model)
      .set("device", question.device ? Json(question.device->name) : Json(nullptr))
      .set("points", static_cast<int64_t>(question.points.size()))
      .set("input_tokens_mean", answer.workload.input_mean)
      .set("output_tokens_mean", answer.workload.output_mean)
      .set("context_tokens_mean", answer.workload.context_mean)
      .set("context_tokens_deviation", answer.workload.context_deviation)
      .set("min_efficiency", question.min_efficiency)
      .set("itl_target_ms", std::move(target))
      .set("batch_opt", Json::object()
                            .set("value", or_null(answer.advice.batch))
                            .set("low", or_null(answer.advice.low))
                            .set("high", or_null(answer.advice.high))
                            .set("level_pct", 90)
                            .set("bound", name_of(answer.advice.bound)))
      .set("throughput_tokens_per_second", std::move(throughput))
      .set("itl_ms", std::move(itl))
      .set("kv", cache_json(answer.kv))
      .set("prediction_error", prediction_error_json(answer.correction))
      .set("half_point_batch", answer.half_point > 0 ? Json(answer.half_point) : Json(nullptr))
      .set("knee_batch", or_null(answer.knee))
      .set("engine_law", answer.engine_law.empty() ? Json(nullptr) : Json(answer.engine_law))
      .set("engine_law_source",
           answer.engine_law.empty() ? Json(nullptr) : Json(answer.engine_law_source))
      .set("host_gap_pct", answer.host_gap ? Json(100 * answer.host_gap->expected) : Json(nullptr))
      .set("host_gap_interval_pct",
           answer.host_gap ? interval_json(*answer.host_gap, 100) : Json(nullptr))
      .set("host_gap_source", answer.host_gap_source)
      .set("curve", std::move(rows))
      .set("steps", std::move(steps))
      .set("replicas", replicas_json(answer.replicas))
      .set("freed", freed_json(answer.freed))
      .set("what_ifs", what_ifs_json(answer.what_ifs))
      .set("open_load_baseline", load_json(answer.load_baseline))
      .set("tensor_parallel", question.variant.tensor_parallel)
      .set("pipeline_parallel", question.variant.pipeline_parallel)
      .set("engine", names_of(question.engine).word)
      .set("engine_version",
           question.engine_version.empty() ? Json(nullptr) : Json(question.engine_version))
      .set("commands", commands_json(answer.commands))
      .set("prices", prices_json(answer.prices))
      .set("live", live_json(answer.live))
      .set("measured_load", answer.measured_load ? measured_load_json(answer) : Json(nullptr))
      .set("open_load", answer.open_load ? open_load_json(answer) : Json(nullptr))
      .set("notes", text::json_array(answer.notes));
}

}  // namespace headroom::report
