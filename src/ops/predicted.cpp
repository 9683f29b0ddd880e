#include "ops/predicted.h"

#include <algorithm>

namespace headroom::ops {
namespace {

using timing::DecodeStep;
using timing::TimeInterval;

double speedup(double whole, double part) {
  return whole > part / 2 ? whole / (whole - part / 2) : 1;
}

PredictedPart part_of(const char* name, const char* title, const TimeInterval& time,
                      const DecodeStep& step) {
  const double whole = step.parts_seconds();
  PredictedPart part;
  part.name = name;
  part.title = title;
  part.ms_low = time.low_seconds * 1e3;
  part.ms = time.seconds * 1e3;
  part.ms_high = time.high_seconds * 1e3;
  part.pct = whole > 0 ? 100 * time.seconds / whole : 0;
  // The other parts as predicted: a part that takes more is also more of the whole.
  const double rest = whole - time.seconds;
  part.speedup_2x_low = speedup(rest + time.low_seconds, time.low_seconds);
  part.speedup_2x = speedup(whole, time.seconds);
  part.speedup_2x_high = speedup(rest + time.high_seconds, time.high_seconds);
  return part;
}

PredictedPart part_of(const char* name, const char* title, const timing::KernelTime& kernels,
                      const DecodeStep& step) {
  PredictedPart part = part_of(name, title, kernels.time, step);
  part.provenance = headroom::name_of(kernels.provenance);
  part.basis = kernels.basis;
  return part;
}

}  // namespace

Result<PredictedRun> predict_decode(const text::JsonView& config, const PredictedQuestion& question,
                                    const timing::TimingModel& model) {
  timing::DecodeOptions options;
  options.context = question.seq;
  options.weights = question.weights;
  HEADROOM_ASSIGN(const timing::DecodePredictor predictor,
                  timing::DecodePredictor::make(config, question.device, options, model));
  HEADROOM_ASSIGN(const DecodeStep step, predictor.step(question.batch));
  PredictedRun run;
  run.model = question.model;
  run.device = question.device.name;
  run.batch = question.batch;
  run.seq = question.seq;
  run.fits = step.fits;
  run.step_ms_low = step.step.low_seconds * 1e3;
  run.step_ms = step.step.seconds * 1e3;
  run.step_ms_high = step.step.high_seconds * 1e3;
  run.roofline_ms = step.roofline_seconds * 1e3;
  run.engine = predictor.engine().name;
  run.provenance = headroom::name_of(step.provenance);
  run.parts = {part_of("gemm", "GEMM", step.matmul, step),
               part_of("attention", "attention", step.attention, step),
               part_of("non_gemm", "non-GEMM operators", step.other, step),
               part_of("host", "host and sampling", step.host, step)};
  run.parts.back().provenance = run.provenance;
  std::stable_sort(run.parts.begin(), run.parts.end(),
                   [](const auto& a, const auto& b) { return a.ms > b.ms; });
  return run;
}

}  // namespace headroom::ops
