#include "report/fit/json.h"

#include <utility>

#include "report/fit/words.h"
#include "report/run_cost.h"
#include "text/json_parts.h"

namespace headroom::report {

using text::Json;

Json interval_json(const fit::Interval& interval) {
  return Json::object()
      .set("low", interval.low)
      .set("expected", interval.expected)
      .set("high", interval.high);
}

Json largest_json(const std::optional<fit::Largest>& largest) {
  if (!largest) return nullptr;
  return Json::object()
      .set("value", largest->value)
      .set("at_bound", largest->at_bound)
      .set("peak_allocated_bytes", largest->peak_allocated)
      .set("device_used_bytes", interval_json(largest->device_used));
}

Json device_json(const fit::DeviceMemory& device) {
  return Json::object()
      .set("name", device.name)
      .set("count", device.count)
      .set("total_bytes", device.total)
      .set("offered_bytes", device.offered)
      .set("provenance", name_of(device.provenance));
}

Json breakdown_json(const fit::ComponentBytes& bytes) {
  Json object = Json::object();
  for (size_t i = 0; i < fit::kComponentCount; ++i) {
    object.set(fit::name_of(static_cast<fit::Component>(i)), bytes.bytes[i]);
  }
  return object;
}

Json host_json(const fit::HostFigures& host) {
  return Json::object().set("requested", host.requested).set("taken", host.taken);
}

namespace {

using fit::Component;

Json memory_json(const fit::MemoryFigures& memory) {
  const Json provenance = Json::object()
                              .set("allocated", name_of(memory.allocated_provenance))
                              .set("reserved", name_of(memory.reserved_provenance))
                              .set("device_used", name_of(memory.device_used_provenance));
  const Json peak_at = Json::object()
                           .set("event", memory.peak_at.event)
                           .set("phase", memory.peak_at.phase)
                           .set("module", memory.peak_at.module)
                           .set("op", memory.peak_at.op)
                           .set("why", memory.peak_at.why);
  Json json = Json::object()
                  .set("peak_allocated_bytes", memory.peak_allocated)
                  .set("peak_reserved_bytes", memory.peak_reserved)
                  .set("peak_requested_bytes", memory.peak_requested)
                  .set("steady_allocated_bytes", memory.steady_allocated)
                  .set("peak_at", peak_at)
                  .set("breakdown_bytes", breakdown_json(memory.breakdown))
                  .set("device_used_bytes", interval_json(memory.device_used))
                  .set("provenance", provenance);
  if (memory.peak_allocated_interval) {
    json.set("peak_allocated_interval_bytes", interval_json(*memory.peak_allocated_interval));
  }
  if (memory.host) json.set("host_bytes", host_json(*memory.host));
  return json;
}

Json remedy_json(const fit::Remedy& remedy) {
  return Json::object()
      .set("name", remedy.name)
      .set("title", remedy.title)
      .set("flag", remedy.flag)
      .set("how", remedy.how)
      .set("cost", remedy.cost)
      .set("fits", fit::name_of(remedy.verdict))
      .set("saves_bytes", remedy.saves)
      .set("peak_allocated_bytes", remedy.peak_allocated)
      .set("device_used_bytes", interval_json(remedy.device_used))
      .set("largest_batch", largest_json(remedy.largest_batch));
}

template <typename T>
Json maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

// Columns rather than objects: a step has tens of thousands of points.
Json timeline_json(const fit::Timeline& timeline) {
  Json columns = Json::object();
  Json event = Json::array();
  Json phase = Json::array();
  Json module = Json::array();
  Json op = Json::array();
  Json reserved = Json::array();
  for (const fit::TimelinePoint& point : timeline.points) {
    event.push_back(point.event);
    phase.push_back(point.phase);
    module.push_back(point.module);
    op.push_back(point.op);
    reserved.push_back(point.reserved);
  }
  Json parts = Json::object();
  for (size_t i = 0; i < fit::kAllocatedComponentCount; ++i) {
    Json values = Json::array();
    for (const fit::TimelinePoint& point : timeline.points) values.push_back(point.bytes.bytes[i]);
    parts.set(fit::name_of(static_cast<Component>(i)), std::move(values));
  }
  columns.set("labels", text::json_array(timeline.labels))
      .set("peak", timeline.peak)
      .set("event", std::move(event))
      .set("phase", std::move(phase))
      .set("module", std::move(module))
      .set("op", std::move(op))
      .set("reserved_bytes", std::move(reserved))
      .set("allocated_bytes", std::move(parts));
  return columns;
}

Json estimate_json(const fit::Estimate& estimate) {
  return Json::object()
      .set("low", estimate.low)
      .set("expected", estimate.expected)
      .set("high", estimate.high);
}

Json as_written_json(const fit::AsWritten& written) {
  return Json::object()
      .set("instead", text::json_array(written.instead))
      .set("fits", fit::name_of(written.verdict))
      .set("room_bytes", interval_json(written.room))
      .set("oom_probability", written.oom_probability)
      .set("peak_allocated_bytes", written.peak_allocated)
      .set("device_used_bytes", interval_json(written.device_used));
}

Json emitted_json(const fit::Emitted& emitted) {
  Json json = Json::object()
                  .set("kind", emitted.kind)
                  .set("file", emitted.file)
                  .set("command", emitted.command)
                  .set("by_hand", text::json_array(emitted.by_hand))
                  .set("notes", text::json_array(emitted.notes));
  if (emitted.as_written) json.set("as_written", as_written_json(*emitted.as_written));
  return json;
}

void add_emitted(const std::vector<fit::Emitted>& emitted, Json& to) {
  if (emitted.empty()) return;
  to.set("emitted", emitted_json(emitted.front()));
  const std::vector<fit::Emitted> others(emitted.begin() + 1, emitted.end());
  if (!others.empty()) to.set("emitted_besides", text::json_array(others, emitted_json));
}

Json time_json(const fit::StepTime& time) {
  const bool has_tokens = time.tokens_per_second > 0;
  return Json::object()
      .set("step_seconds", time.step_seconds.expected)
      .set("step_seconds_low", time.step_seconds.low)
      .set("step_seconds_high", time.step_seconds.high)
      .set("tokens_per_second", has_tokens ? Json(time.tokens_per_second) : Json(nullptr))
      .set("compute_seconds", time.compute_seconds)
      .set("communication_seconds", time.communication_seconds)
      .set("exposed_communication_seconds", time.exposed_seconds)
      .set("host_seconds", time.host_seconds)
      .set("pipeline_waiting_seconds", time.pipeline_seconds)
      .set("kernels", time.kernels)
      .set("provenance", name_of(time.provenance))
      .set("basis", time.basis);
}

namespace {

Json stages_json(const std::vector<fit::StageFigures>& stages) {
  Json list = Json::array();
  for (const fit::StageFigures& stage : stages) {
    list.push_back(Json::object()
                       .set("stage", stage.stage)
                       .set("layers", stage.layers)
                       .set("micro_batches_in_flight", stage.in_flight)
                       .set("peak_allocated_bytes", stage.peak_allocated)
                       .set("device_used_bytes", interval_json(stage.device_used))
                       .set("fits", fit::name_of(stage.verdict)));
  }
  return list;
}

Json move_json(const fit::PipelineMove& move) {
  return Json::object()
      .set("name", move.name)
      .set("title", move.title)
      .set("how", move.how)
      .set("cost", move.cost)
      .set("fits", fit::name_of(move.verdict))
      .set("saves_bytes", move.saves)
      .set("device_used_bytes", interval_json(move.device_used))
      .set("time", move.time ? time_json(*move.time) : Json(nullptr))
      .set("stages", stages_json(move.stages));
}

}  // namespace

Json fit_json(const fit::FitAnswer& answer) {
  Json settings = Json::array();
  for (const fit::Setting& setting : answer.settings) {
    settings.push_back(Json::object()
                           .set("name", setting.name)
                           .set("value", setting.value)
                           .set("origin", fit::name_of(setting.origin)));
  }
  Json remedies = Json::array();
  for (const fit::Remedy& remedy : answer.remedies) remedies.push_back(remedy_json(remedy));
  Json json = Json::object()
                  .set("schema", "headroom.fit/1")
                  .set("fits", fit::name_of(answer.verdict))
                  .set("room_bytes", interval_json(answer.room))
                  .set("oom_probability", answer.oom_probability)
                  .set("oom_probability_basis", kOomBasis)
                  .set("model", answer.model)
                  .set("parameters", answer.parameter_count)
                  .set("trainable_parameters", answer.trainable_count)
                  .set("device", device_json(answer.device))
                  .set("settings", std::move(settings))
                  .set("memory", memory_json(answer.memory));
  if (answer.time) json.set("time", time_json(*answer.time));
  if (answer.cost) json.set("cost", run_cost_json(*answer.cost));
  add_emitted(answer.emitted, json);
  if (!answer.stages.empty()) {
    json.set("stages", stages_json(answer.stages))
        .set("moves", text::json_array(answer.moves, move_json));
  }
  json.set("largest_batch", largest_json(answer.largest_batch))
      .set("longest_seq", largest_json(answer.longest_seq))
      .set("remedies", std::move(remedies))
      .set("notes", text::json_array(answer.notes))
      .set("warnings", text::json_array(answer.warnings))
      .set("assumptions", text::json_array(answer.assumptions));
  if (!answer.timeline.points.empty()) json.set("timeline", timeline_json(answer.timeline));
  return json;
}

Json against_json(const fit::AgainstAnswer& answer) {
  Json rows = Json::array();
  for (const fit::AgainstRow& row : answer.rows) {
    Json json = Json::object()
                    .set("id", row.id)
                    .set("source", row.source)
                    .set("model", row.model)
                    .set("status", row.supported ? "ok" : "unsupported")
                    .set("reason", row.reason)
                    .set("metric", row.metric)
                    .set("measured_bytes", maybe(row.measured))
                    .set("predicted_bytes", maybe(row.predicted))
                    .set("error_pct", maybe(row.error_pct));
    if (row.measured_seconds) {
      json.set("measured_seconds", *row.measured_seconds)
          .set("predicted_seconds",
               row.predicted_seconds ? estimate_json(*row.predicted_seconds) : Json(nullptr));
    }
    if (row.supported) json.set("provenance", name_of(row.provenance));
    if (row.interval) json.set("interval_bytes", interval_json(*row.interval));
    if (row.peak_reserved) {
      json.set("peak_reserved_bytes", *row.peak_reserved)
          .set("oom_probability", maybe(row.oom_probability))
          .set("fused_loss", row.fused_loss)
          .set("ranks", row.ranks);
    }
    rows.push_back(std::move(json));
  }
  Json summary = Json::array();
  for (const fit::AgainstSummary& line : answer.summary) {
    summary.push_back(Json::object()
                          .set("source", line.source)
                          .set("metric", line.metric)
                          .set("rows", line.rows)
                          .set("supported", line.supported)
                          .set("median_error_pct", maybe(line.median_pct))
                          .set("p90_error_pct", maybe(line.p90_pct))
                          .set("worst_error_pct", maybe(line.worst_pct))
                          .set("worst_id", line.worst_id)
                          .set("covered_pct", maybe(line.covered_pct)));
  }
  return Json::object()
      .set("schema", "headroom.fit/1")
      .set("against", answer.file)
      .set("calibration", answer.calibration)
      .set("learned", text::json_array(answer.learned))
      .set("rows", std::move(rows))
      .set("summary", std::move(summary))
      .set("warnings", text::json_array(answer.warnings));
}

}  // namespace headroom::report
