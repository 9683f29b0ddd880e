#include "report/ops/json.h"

#include "report/ops/words.h"
#include "text/json_parts.h"

namespace headroom::report {
namespace {

using text::Json;

Json group_json(const ops::GroupShare& group) {
  return Json::object().set("name", group.name).set("ms", group.ms).set("pct", group.pct);
}

Json accounting_json(const ops::Accounting& accounting) {
  return Json::object()
      .set("total_ms", accounting.total_ms)
      .set("groups", text::json_array(accounting.groups, group_json));
}

Json trace_json(const ops::TraceFacts& trace) {
  return Json::object()
      .set("file", trace.file)
      .set("format", trace.format)
      .set("device", trace.device)
      .set("rank", trace.rank < 0 ? Json(nullptr) : Json(trace.rank))
      .set("events", trace.events)
      .set("kernels", trace.kernels)
      .set("has_device", trace.has_device)
      .set("lacks_kernels", trace.lacks_kernels)
      .set("devices", trace.devices)
      .set("has_steps", trace.has_steps)
      .set("has_starts", trace.has_starts)
      .set("is_partial", trace.is_partial)
      .set("faults", text::json_array(trace.faults));
}

Json step_json(const ops::StepTime& step) {
  return Json::object()
      .set("name", step.name)
      .set("wall_ms", step.wall_ms)
      .set("kernel_ms", step.kernel_ms)
      .set("backlog_ms", step.backlog_ms);
}

// What rows of operators and of kernels have in common.
template <typename Row>
Json row_json(const Row& row) {
  return Json::object()
      .set("name", row.name)
      .set("group", row.group)
      .set("count", row.count)
      .set("kernel_ms", row.kernel_ms)
      .set("pct", row.pct);
}

Json kernel_json(const ops::KernelRow& row) {
  return row_json(row)
      .set("operator", row.operation.empty() ? Json(nullptr) : Json(row.operation))
      .set("name_group", row.name_group);
}

Json coverage_json(const ops::Coverage& coverage) {
  const auto& agree = coverage.names_agree_pct_of_kernel_time;
  return Json::object()
      .set("unlinked_pct_of_kernel_time", coverage.unlinked_pct_of_kernel_time)
      .set("unclassified_pct_of_kernel_time", coverage.unclassified_pct_of_kernel_time)
      .set("in_graphs_pct_of_kernel_time", coverage.in_graphs_pct_of_kernel_time)
      .set("names_agree_pct_of_kernel_time", agree ? Json(*agree) : Json(nullptr));
}

Json replay_json(const ops::OpsAnswer& answer) {
  if (!answer.replay) return nullptr;
  return Json::object()
      .set("measured_ms", answer.replay->measured_ms)
      .set("replayed_ms", answer.replay->replayed_ms)
      .set("error_pct", answer.replay->error_pct)
      .set("unseen_ms", answer.replay->unseen_ms);
}

Json change_json(const ops::HorizonChange& change) {
  const bool is_bounded = change.amdahl_speedup > 0;
  return Json::object()
      .set("change", change.change)
      .set("speedup", change.speedup)
      .set("speedup_low", change.speedup_low)
      .set("speedup_high", change.speedup_high)
      .set("amdahl_speedup", is_bounded ? Json(change.amdahl_speedup) : Json(nullptr))
      .set("provenance", "replayed");
}

Json roofline_row_json(const ops::RooflineRow& row) {
  return Json::object()
      .set("name", row.name)
      .set("shapes", row.shapes)
      .set("group", row.group)
      .set("count", row.count)
      .set("flops", row.flops)
      .set("bytes", row.bytes)
      .set("rate", row.rate.empty() ? Json(nullptr) : Json(row.rate))
      .set("bound", row.is_compute_bound ? "compute" : "traffic")
      .set("kernel_ms", row.kernel_ms)
      .set("floor_ms", row.floor_ms)
      .set("above_ms", row.above_ms)
      .set("achieved_pct", row.achieved_pct)
      .set("flops_per_second", row.flops_per_second)
      .set("bytes_per_second", row.bytes_per_second);
}

Json roofline_json(const std::optional<ops::OperatorRoofline>& roofline) {
  if (!roofline) return nullptr;
  Json rates = Json::object();
  for (const auto& [rate, flops] : roofline->flops_per_second) rates.set(rate, flops);
  return Json::object()
      .set("device", roofline->device)
      .set("provenance", name_of(roofline->provenance))
      .set("source", roofline->source)
      .set("given", text::json_array(roofline->given, [](const auto& name) { return Json(name); }))
      .set("bytes_per_second", roofline->bytes_per_second)
      .set("flops_per_second", std::move(rates))
      .set("covered_pct_of_kernel_time", roofline->covered_pct)
      .set("kernel_ms", roofline->kernel_ms)
      .set("floor_ms", roofline->floor_ms)
      .set("above_ms", roofline->above_ms)
      .set("compute_bound_pct", roofline->compute_bound_pct)
      .set("operators", text::json_array(roofline->rows, roofline_row_json));
}

Json counters_json(const std::optional<ops::KernelCounters>& counters) {
  if (!counters) return nullptr;
  const auto value_json = [](const ops::CounterValue& value) {
    return Json::object()
        .set("name", value.name)
        .set("unit", value.unit.empty() ? Json(nullptr) : Json(value.unit))
        .set("mean", value.mean);
  };
  const auto kernel_row_json = [&](const ops::CounterRow& row) {
    return Json::object()
        .set("kernel", row.kernel)
        .set("group", row.group)
        .set("count", row.count)
        .set("kernel_ms", row.kernel_ms)
        .set("pct", row.pct)
        .set("counted_launches", row.launches)
        .set("values", text::json_array(row.values, value_json));
  };
  return Json::object()
      .set("provenance", "measured")
      .set("covered_pct_of_kernel_time", counters->covered_pct)
      .set("unmatched_launches", counters->unmatched_launches)
      .set("kernels", text::json_array(counters->rows, kernel_row_json));
}

}  // namespace

Json ops_json(const ops::OpsAnswer& answer) {
  Json wall = accounting_json(answer.wall_time);
  wall.set("idle_host_ms", answer.idle.host_ms)
      .set("idle_launch_ms", answer.idle.launch_ms)
      .set("idle_unknown_ms", answer.idle.unknown_ms)
      .set("communication_hidden_ms", answer.communication_hidden_ms);
  Json paper = accounting_json(answer.nongemm_bench);
  paper.set("paper_groups", *accounting_json(answer.nongemm_bench_paper).find("groups"));
  return Json::object()
      .set("schema", "headroom.ops/1")
      .set("provenance", "measured")
      .set("trace", trace_json(answer.trace))
      .set("bound", std::string(bound_name(answer.bound)))
      .set("bound_pct", answer.bound_pct)
      .set("steps", text::json_array(answer.steps, step_json))
      .set("kernel_time", accounting_json(answer.kernel_time))
      .set("wall_time", answer.trace.has_starts ? std::move(wall) : Json(nullptr))
      .set("nongemm_bench", std::move(paper))
      .set("backlog_ms", answer.trace.has_starts ? Json(answer.backlog_ms) : Json(nullptr))
      .set("overrun_ms", answer.trace.has_starts ? Json(answer.overrun_ms) : Json(nullptr))
      .set("coverage", coverage_json(answer.coverage))
      .set("replay", replay_json(answer))
      .set("horizon", text::json_array(answer.horizon, change_json))
      .set("roofline", roofline_json(answer.roofline))
      .set("operators", text::json_array(answer.operators, row_json<ops::OperatorTime>))
      .set("kernels", text::json_array(answer.kernels, kernel_json))
      .set("counters", counters_json(answer.counters))
      .set("notes", text::json_array(answer.notes));
}

}  // namespace headroom::report
