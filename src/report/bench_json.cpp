#include "report/bench_json.h"

namespace headroom::report {

using text::Json;

namespace {

Json interval_json(const bench::TimeInterval& time) {
  return Json::object()
      .set("low", time.low_seconds * 1e3)
      .set("expected", time.seconds * 1e3)
      .set("high", time.high_seconds * 1e3);
}

double share_pct(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

Json kernels_json(const bench::KernelTime& kernels, const bench::DecodeStep& step,
                  const bench::DecodeAnswer& answer) {
  const double seconds = kernels.time.seconds;
  return Json::object()
      .set("time_ms", interval_json(kernels.time))
      .set("share_pct", share_pct(seconds, step.parts_seconds()))
      .set("flops", kernels.flops)
      .set("bytes", kernels.bytes)
      .set("arithmetic_intensity", kernels.arithmetic_intensity())
      .set("bytes_per_second", kernels.bytes_per_second())
      .set("bandwidth_pct", share_pct(kernels.bytes_per_second(), answer.peak_bytes_per_second))
      .set("compute_pct",
           share_pct(seconds > 0 ? kernels.flops / seconds : 0, answer.peak_flops_per_second))
      .set("provenance", name_of(kernels.provenance))
      .set("basis", kernels.basis);
}

Json step_json(const bench::DecodeStep& step, const bench::DecodeAnswer& answer) {
  return Json::object()
      .set("batch", step.batch)
      .set("fits", step.fits)
      .set("kv_cache_bytes", step.kv_cache)
      .set("step_ms", interval_json(step.step))
      .set("provenance", name_of(step.provenance))
      .set("tokens_per_second", static_cast<double>(step.batch) / step.step.seconds)
      .set("roofline_ms", step.roofline_seconds * 1e3)
      .set("attention", kernels_json(step.attention, step, answer))
      .set("matmul", kernels_json(step.matmul, step, answer))
      .set("other", kernels_json(step.other, step, answer))
      .set("host_gap", Json::object()
                           .set("time_ms", interval_json(step.host))
                           .set("share_pct", share_pct(step.host.seconds, step.parts_seconds()))
                           .set("provenance", name_of(Provenance::extrapolated))
                           .set("basis", answer.engine));
}

}  // namespace

Json decode_json(const bench::DecodeAnswer& answer) {
  Json steps = Json::array();
  for (const bench::DecodeStep& step : answer.steps) steps.push_back(step_json(step, answer));
  Json saturation = nullptr;
  if (answer.saturation_batch) saturation = *answer.saturation_batch;
  return Json::object()
      .set("schema", "headroom.bench_decode/1")
      .set("predicted", true)
      .set("model", answer.model)
      .set("device", answer.device)
      .set("points", static_cast<int64_t>(answer.points))
      .set("context", answer.context)
      .set("dtype", answer.dtype)
      .set("engine", Json::object().set("name", answer.engine).set("source", answer.engine_source))
      .set("weights_bytes", answer.weights)
      .set("largest_batch", answer.largest_batch)
      .set("peak_bytes_per_second", answer.peak_bytes_per_second)
      .set("peak_flops_per_second", answer.peak_flops_per_second)
      .set("interval_level_pct", 90)
      .set("saturation_batch", std::move(saturation))
      .set("steps", std::move(steps));
}

}  // namespace headroom::report
