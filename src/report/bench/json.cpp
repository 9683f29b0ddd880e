#include "report/bench/json.h"

#include <optional>

#include "report/bench/decode_intervals.h"
#include "text/json_parts.h"

namespace headroom::report {

using text::Json;
using text::or_null;

namespace {

Json interval_json(const bench::TimeInterval& time) {
  return Json::object()
      .set("low", time.low_seconds * 1e3)
      .set("expected", time.seconds * 1e3)
      .set("high", time.high_seconds * 1e3);
}

// Of a class in one profiled run nobody knows the spread.
Json class_interval_json(const bench::TimeInterval& time, Provenance provenance) {
  if (provenance != Provenance::measured) return interval_json(time);
  return Json::object()
      .set("low", nullptr)
      .set("expected", time.seconds * 1e3)
      .set("high", nullptr);
}

double share_pct(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

// Of what was measured once nobody knows it.
Json predicted_spread(const Spread& spread, Provenance provenance, double scale = 1) {
  if (provenance == Provenance::measured) return nullptr;
  return Json::object().set("low", scale * spread.low).set("high", scale * spread.high);
}

Json kernels_json(const bench::KernelTime& kernels, const bench::DecodeStep& step,
                  const bench::DecodeAnswer& answer) {
  const double seconds = kernels.time.seconds;
  return Json::object()
      .set("time_ms", class_interval_json(kernels.time, kernels.provenance))
      .set("share_pct", share_pct(seconds, step.parts_seconds()))
      .set("share_interval_pct",
           predicted_spread(share_spread(step, kernels.time), kernels.provenance, 100))
      .set("flops", kernels.flops)
      .set("bytes", kernels.bytes)
      .set("arithmetic_intensity", kernels.arithmetic_intensity())
      .set("bytes_per_second", kernels.bytes_per_second())
      .set("bytes_per_second_interval",
           predicted_spread(rate_spread(kernels.bytes, kernels.time), kernels.provenance))
      .set("bandwidth_pct", share_pct(kernels.bytes_per_second(), answer.peak_bytes_per_second))
      .set("compute_pct",
           share_pct(seconds > 0 ? kernels.flops / seconds : 0, answer.peak_flops_per_second))
      .set("provenance", name_of(kernels.provenance))
      .set("basis", kernels.basis);
}

Json step_json(const bench::DecodeStep& step, const bench::DecodeAnswer& answer) {
  const Provenance host_provenance =
      step.provenance == Provenance::measured ? Provenance::measured : Provenance::extrapolated;
  return Json::object()
      .set("batch", step.batch)
      .set("fits", step.fits)
      .set("kv_cache_bytes", step.kv_cache)
      .set("step_ms", interval_json(step.step))
      .set("provenance", name_of(step.provenance))
      .set("tokens_per_second", static_cast<double>(step.batch) / step.step.seconds)
      .set("tokens_per_second_interval",
           predicted_spread(rate_spread(static_cast<double>(step.batch), step.step),
                            step.provenance))
      .set("roofline_ms", step.roofline_seconds * 1e3)
      .set("attention", kernels_json(step.attention, step, answer))
      .set("matmul", kernels_json(step.matmul, step, answer))
      .set("other", kernels_json(step.other, step, answer))
      .set("host_gap",
           Json::object()
               .set("time_ms", class_interval_json(step.host, host_provenance))
               .set("share_pct", share_pct(step.host.seconds, step.parts_seconds()))
               .set("share_interval_pct",
                    predicted_spread(share_spread(step, step.host), host_provenance, 100))
               .set("provenance", name_of(host_provenance))
               .set("basis", answer.engine));
}

Json run_json(const bench::DecodeRun& run) {
  return Json::object()
      .set("batch", run.batch)
      .set("samples", run.samples)
      .set("quickest_ms", run.quickest_seconds * 1e3)
      .set("undisturbed_ms",
           run.undisturbed_seconds ? Json(*run.undisturbed_seconds * 1e3) : Json(nullptr))
      .set("profiled_ms", run.profiled_seconds * 1e3)
      .set("profiled_waited_pct", 100 * run.waited_share)
      .set("trace", run.trace)
      .set("joules", or_null(run.joules))
      .set("notes", text::json_array(run.notes));
}

Json not_run_json(const bench::DecodeNotRun& one) {
  return Json::object()
      .set("batch", one.batch)
      .set("status", one.is_failure ? "failed" : "refused")
      .set("reason", one.reason);
}

Json measured_json(const bench::DecodeMeasurement& measured, const std::string& folder) {
  return Json::object()
      .set("machine", timing::machine_json(measured.machine))
      .set("layers", or_null(measured.layers))
      .set("layers_of_model", or_null(measured.layers_of_model))
      .set("runs", text::json_array(measured.runs, run_json))
      .set("not_measured", text::json_array(measured.not_run, not_run_json))
      .set("not_counted", measured.not_counted.empty() ? Json(nullptr) : Json(measured.not_counted))
      .set("folder", folder.empty() ? Json(nullptr) : Json(folder));
}

Json class_counters_json(const bench::ClassCounters& counters) {
  return Json::object()
      .set("class", bench::name_of(counters.kind))
      .set("launches", counters.launches)
      .set("kernel_seconds", or_null(counters.seconds))
      .set("dram_bytes", or_null(counters.dram_bytes))
      .set("dram_bytes_per_second", or_null(counters.bytes_per_second()))
      .set("dram_pct_of_peak", or_null(counters.dram_pct))
      .set("thread_flops", or_null(counters.thread_flops))
      .set("tensor_flops", or_null(counters.tensor_flops))
      .set("flops_per_byte", or_null(counters.flops_per_byte()))
      .set("thread_flops_per_byte", or_null(counters.thread_flops_per_byte()))
      .set("stalls", text::json_array(counters.stalls, [](const bench::Stall& stall) {
             return Json::object().set("reason", stall.reason).set("pct", stall.pct);
           }));
}

Json counters_json(const bench::DecodeCounters& counters) {
  return Json::object()
      .set("batch", counters.batch)
      .set("file", counters.file)
      .set("classes", text::json_array(counters.classes, class_counters_json))
      .set("missing_metrics", text::json_array(counters.missing));
}

// What a calibration says of steps that were measured.
Json predicted_json(const bench::DecodeAnswer& answer) {
  if (answer.predicted.empty()) return nullptr;
  Json steps = Json::array();
  for (size_t i = 0; i < answer.predicted.size(); ++i) {
    const double measured = answer.steps[i].step.seconds;
    steps.push_back(step_json(answer.predicted[i], answer)
                        .set("error_pct", 100 * (answer.predicted[i].step.seconds / measured - 1)));
  }
  return Json::object()
      .set("calibration", answer.predicted_from)
      .set("median_error_pct", answer.median_error_pct)
      .set("median_error_undisturbed_pct", or_null(answer.median_error_undisturbed_pct))
      .set("steps", std::move(steps));
}

}  // namespace

Json decode_json(const bench::DecodeAnswer& answer, const std::string& folder) {
  Json steps = Json::array();
  for (const bench::DecodeStep& step : answer.steps) steps.push_back(step_json(step, answer));
  Json saturation = nullptr;
  if (answer.saturation_batch) saturation = *answer.saturation_batch;
  return Json::object()
      .set("schema", "headroom.bench_decode/1")
      .set("predicted", !answer.measured)
      .set("model", answer.model)
      .set("device", answer.device)
      .set("points", static_cast<int64_t>(answer.points))
      .set("context", answer.context)
      .set("dtype", answer.dtype)
      .set("checkpoint_type", text::or_null(answer.checkpoint_type))
      .set("engine", Json::object().set("name", answer.engine).set("source", answer.engine_source))
      .set("least_judged_step_ms", answer.least_judged_seconds > 0
                                       ? Json(answer.least_judged_seconds * 1e3)
                                       : Json(nullptr))
      .set("host_of_gpu_servers", answer.is_host_of_gpus)
      .set("weights_bytes", answer.weights)
      .set("largest_batch", answer.largest_batch)
      .set("peak_bytes_per_second", answer.peak_bytes_per_second)
      .set("peak_flops_per_second", answer.peak_flops_per_second)
      .set("peaks", answer.peaks)
      .set("interval_level_pct", answer.measured ? 95 : 90)
      .set("saturation_batch", std::move(saturation))
      .set("steps", std::move(steps))
      .set("predicted_steps", predicted_json(answer))
      .set("counters", text::json_array(answer.counters, counters_json))
      .set("measured", answer.measured ? measured_json(*answer.measured, folder) : Json(nullptr));
}

}  // namespace headroom::report
