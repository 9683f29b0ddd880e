#include "ops/predicted.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "timing/operator_work.h"

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

// The products of a step with quantized weights, and what quantizes their inputs.
struct QuantizedProducts {
  timing::TimeSum products;
  timing::TimeSum quantize;
  double saved_bytes = 0;             // of the weights
  double saved_roofline_seconds = 0;  // at the device's peaks
};

// As serving engines have them: int8 and fp8 quantize what goes into a product in a kernel of its
// own and scale what comes out within it; weights of four bits are unpacked within the product.
Result<QuantizedProducts> quantized_products(const timing::DecodeWork& work,
                                             const PredictedQuestion& question,
                                             const timing::TimingModel& model) {
  const auto element = static_cast<double>(op::element_size(question.weights));
  QuantizedProducts sums;
  for (const timing::CountedCall& one : work.matmul) {
    const auto* const shape = std::get_if<timing::GemmShape>(&one.call.shape);
    const bool is_head = shape == nullptr || shape->n == work.vocabulary;
    timing::Call made = one.call;
    if (!is_head) {
      const auto m = static_cast<double>(shape->m);
      const auto k = static_cast<double>(shape->k);
      const double weights = static_cast<double>(shape->batch) * k * static_cast<double>(shape->n);
      const bool is_packed = question.quantize == Quantize::w4a16;
      const double stored = is_packed ? kInt4Bytes : 1;
      if (is_packed) {
        made.bytes -= weights * (element - stored);
      } else {
        const bool is_int8 = question.quantize == Quantize::int8;
        made = timing::gemm_call(*shape, is_int8 ? device::Rate::int8 : device::Rate::fp8, 1);
        made.bytes = m * k + weights + m * static_cast<double>(shape->n) * element;
        const timing::Call before =
            timing::rows_call(timing::OperatorClass::elementwise,
                              {.rows = shape->m, .width = shape->k}, m * k * (element + 1));
        HEADROOM_ASSIGN(const auto time, model.predict(before, question.device));
        sums.quantize.add(time, one.times);
      }
      sums.saved_bytes += static_cast<double>(one.times) * weights * (element - stored);
    }
    HEADROOM_ASSIGN(const auto time, model.predict(made, question.device));
    sums.products.add(time, one.times);
    HEADROOM_ASSIGN(const auto whole, model.predict(one.call, question.device));
    sums.saved_roofline_seconds +=
        static_cast<double>(one.times) * (whole.roofline_seconds - time.roofline_seconds);
  }
  return sums;
}

PredictedPart part_of(const char* name, const char* title, const timing::TimeSum& sum) {
  PredictedPart part;
  part.name = name;
  part.title = title;
  part.ms_low = sum.low * 1e3;
  part.ms = sum.middle * 1e3;
  part.ms_high = sum.high * 1e3;
  part.provenance = headroom::name_of(Provenance::extrapolated);
  part.basis = sum.basis;
  return part;
}

// Shares, and what each part twice as fast would give; the step as the sum of its parts, whose
// errors are taken to be apart from each other.
void sum_up(PredictedRun& run) {
  double whole = 0;
  double below = 0;
  double above = 0;
  for (const PredictedPart& part : run.parts) {
    whole += part.ms;
    below += (part.ms - part.ms_low) * (part.ms - part.ms_low);
    above += (part.ms_high - part.ms) * (part.ms_high - part.ms);
  }
  run.step_ms = whole;
  run.step_ms_low = std::max(0.0, whole - std::sqrt(below));
  run.step_ms_high = whole + std::sqrt(above);
  for (PredictedPart& part : run.parts) {
    const double rest = whole - part.ms;
    part.pct = 100 * part.ms / whole;
    part.speedup_2x_low = speedup(rest + part.ms_low, part.ms_low);
    part.speedup_2x = speedup(whole, part.ms);
    part.speedup_2x_high = speedup(rest + part.ms_high, part.ms_high);
  }
}

// The run with its linear layers quantized.
Result<void> quantize(const timing::DecodeWork& work, const timing::DecodePredictor& predictor,
                      const PredictedQuestion& question, const timing::TimingModel& model,
                      PredictedRun& run) {
  HEADROOM_ASSIGN(const QuantizedProducts made, quantized_products(work, question, model));
  run.quantize = name_of(question.quantize);
  run.unchanged_ms = run.step_ms;
  run.roofline_ms -= made.saved_roofline_seconds * 1e3;
  for (PredictedPart& part : run.parts) {
    if (part.name == "gemm") part = part_of("gemm", "GEMM", made.products);
  }
  if (made.quantize.middle > 0) {
    run.parts.push_back(part_of("quantize", "quantize and dequantize", made.quantize));
  }
  sum_up(run);
  run.provenance = headroom::name_of(Provenance::extrapolated);
  if (!run.fits && question.device.usable_memory.known()) {
    const double budget =
        timing::kMemoryShare * static_cast<double>(question.device.usable_memory.value.count);
    const double needed =
        static_cast<double>(predictor.weights().count) - made.saved_bytes +
        static_cast<double>(predictor.kv_of_one().count) * static_cast<double>(question.batch);
    run.fits = needed <= budget;
  }
  if (question.quantize == Quantize::w4a16) {
    run.notes.emplace_back(
        "no kernel with weights of four bits has a law here: a product takes the time of the same "
        "product with less to read");
  }
  return {};
}

}  // namespace

std::optional<Quantize> parse_quantize(std::string_view name) {
  for (const Quantize one : {Quantize::none, Quantize::int8, Quantize::fp8, Quantize::w4a16}) {
    if (name_of(one) == name) return one;
  }
  return std::nullopt;
}

std::string_view name_of(Quantize quantize) {
  constexpr std::array<std::string_view, 4> kNames{"none", "int8", "fp8", "w4a16"};
  return kNames[static_cast<size_t>(quantize)];
}

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
  if (question.quantize != Quantize::none) {
    options.is_eager = predictor.engine().is_eager;
    HEADROOM_ASSIGN(const timing::DecodeWork work,
                    timing::decode_work(config, options, question.batch));
    HEADROOM_TRY(quantize(work, predictor, question, model, run));
  }
  std::stable_sort(run.parts.begin(), run.parts.end(),
                   [](const auto& a, const auto& b) { return a.ms > b.ms; });
  return run;
}

}  // namespace headroom::ops
