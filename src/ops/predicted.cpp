#include "ops/predicted.h"

#include <algorithm>
#include <array>

#include "text/number.h"

namespace headroom::ops {
namespace {

using timing::DecodeStep;
using timing::TimeInterval;

double speedup(double whole, double part) {
  return whole > part / 2 ? whole / (whole - part / 2) : 1;
}

// As serving engines have them: int8 and fp8 multiply what a kernel of its own quantized; weights
// of four bits are unpacked within the product.
timing::DecodeVariant variant_of(Quantize quantize) {
  timing::DecodeVariant variant;
  if (quantize == Quantize::none) return variant;
  variant.weight_element_bytes = quantize == Quantize::w4a16 ? timing::kInt4Bytes : 1;
  if (quantize == Quantize::int8) variant.product_rate = device::Rate::int8;
  if (quantize == Quantize::fp8) variant.product_rate = device::Rate::fp8;
  return variant;
}

// Whose host it is. A law that saw none beside the kernels of long steps does not know of short
// ones.
timing::KernelTime host_of(const DecodeStep& step, const timing::Engine& engine) {
  timing::KernelTime host;
  host.time = step.host;
  host.provenance = engine.device.empty() ? Provenance::extrapolated : Provenance::calibrated;
  host.basis = step.host.seconds > 0
                   ? "host of " + engine.name + ": " + engine.source
                   : "no host was seen beside the kernels of " + engine.name + ", in steps of " +
                         text::formatted("%.1f ms", engine.least_step_seconds * 1e3) + " and more";
  return host;
}

std::vector<PredictedPart> parts_of(const DecodeStep& step, const timing::Engine& engine) {
  const double whole = step.parts_seconds();
  std::vector<PredictedPart> parts{part_of("gemm", "GEMM", step.matmul, whole),
                                   part_of("attention", "attention", step.attention, whole),
                                   part_of("non_gemm", "non-GEMM operators", step.other, whole)};
  if (step.host.high_seconds > 0) {
    parts.push_back(part_of("host", "host and sampling", host_of(step, engine), whole));
  }
  if (step.quantize.time.seconds > 0) {
    parts.push_back(part_of("quantize", "quantize and dequantize", step.quantize, whole));
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.ms > b.ms; });
  return parts;
}

// Of the parts that are there; a host that nothing was seen of is none.
Provenance weakest_of(const DecodeStep& step, const timing::Engine& engine) {
  Provenance weakest =
      step.host.high_seconds > 0 ? host_of(step, engine).provenance : Provenance::calibrated;
  for (const timing::KernelTime* part :
       {&step.matmul, &step.attention, &step.other, &step.quantize}) {
    if (part->time.seconds > 0) weakest = std::max(weakest, part->provenance);
  }
  return weakest;
}

void note_quantized(const timing::DecodePredictor& predictor, const PredictedQuestion& question,
                    PredictedRun& run) {
  const auto asked = variant_of(question.quantize).product_rate;
  if (asked && !predictor.variant().product_rate) {
    run.notes.push_back(run.device + " has no " + std::string(device::name_of(*asked)) +
                        " arithmetic: weights are unpacked within the product");
  }
  if (!predictor.variant().product_rate) {
    run.notes.emplace_back(
        "no kernel that unpacks weights has a law here: a product takes the time of the same "
        "product with less to read");
  }
}

// Whole steps of servers may show a step to be nearer than the laws of its kernels are: what one of
// its parts took they do not show.
void note_parts_of_step(const timing::Engine& engine, PredictedRun& run) {
  const auto is_wider = [&](const PredictedPart& part) {
    return part.ms - part.ms_low > run.step_ms - run.step_ms_low ||
           part.ms_high - part.ms > run.step_ms_high - run.step_ms;
  };
  const auto wider = std::ranges::find_if(run.parts, is_wider);
  const auto& measured = engine.step_half_width;
  if (!measured || wider == run.parts.end()) return;
  std::string where;
  for (const std::string& device : measured->devices) where += device + ", ";
  where += "weights in";
  for (const device::Rate type : measured->weights)
    where += " " + std::string(device::name_of(type));
  run.notes.push_back(
      "the step's interval is narrower than that of " + wider->title +
      " within it: it is what whole steps of servers were off by (" + engine.name + ": " + where +
      "), while what a part of them took was not measured, so that each part has the interval of "
      "its law");
}

timing::DecodeOptions options_of(const PredictedQuestion& question, Quantize quantize) {
  timing::DecodeOptions options;
  options.context = question.seq;
  options.weights = question.weights;
  options.variant = variant_of(quantize);
  return options;
}

}  // namespace

PredictedPart part_of(std::string_view name, std::string_view title,
                      const timing::KernelTime& kernels, double whole_seconds) {
  const TimeInterval& time = kernels.time;
  const double rest = whole_seconds - time.seconds;
  PredictedPart part;
  part.name = name;
  part.title = title;
  part.ms_low = time.low_seconds * 1e3;
  part.ms = time.seconds * 1e3;
  part.ms_high = time.high_seconds * 1e3;
  part.pct = whole_seconds > 0 ? 100 * time.seconds / whole_seconds : 0;
  part.flops = kernels.flops;
  part.bytes = kernels.bytes;
  part.speedup_2x_low = speedup(rest + time.low_seconds, time.low_seconds);
  part.speedup_2x = speedup(whole_seconds, time.seconds);
  part.speedup_2x_high = speedup(rest + time.high_seconds, time.high_seconds);
  part.provenance = headroom::name_of(kernels.provenance);
  part.basis = kernels.basis;
  return part;
}

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

Result<Bytes> memory_of_serving(const text::JsonView& config, const PredictedQuestion& question,
                                const timing::TimingModel& model) {
  HEADROOM_ASSIGN(const auto predictor,
                  timing::DecodePredictor::make(config, question.device,
                                                options_of(question, question.quantize), model));
  return predictor.weights() + predictor.kv_of_one() * question.batch;
}

void judge_memory(const device::Device& device, Bytes weights, std::optional<Bytes> serving,
                  PredictedRun& run) {
  if (!device.usable_memory.known()) return;
  if (serving) {
    run.needed = *serving;
    run.available = timing::memory_for_decoding(device);
  } else if (weights > device.usable_memory.value) {
    run.needed = weights;
    run.available = device.usable_memory.value;
    run.needs_more_than_weights = false;
  }
  run.fits = run.needed <= run.available;
}

Result<PredictedRun> predict_decode(const text::JsonView& config, const PredictedQuestion& question,
                                    const timing::TimingModel& model) {
  const auto predictor_with = [&](Quantize quantize) {
    return timing::DecodePredictor::make(config, question.device, options_of(question, quantize),
                                         model);
  };
  HEADROOM_ASSIGN(const timing::DecodePredictor predictor, predictor_with(question.quantize));
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
  run.provenance = headroom::name_of(weakest_of(step, predictor.engine()));
  run.quantize = name_of(question.quantize);
  run.parts = parts_of(step, predictor.engine());
  run.needed = predictor.weights() + step.kv_cache;
  run.available = timing::memory_for_decoding(question.device);
  if (step.host.high_seconds <= 0) {
    run.notes.push_back("nothing is added for a host: none was seen beside the kernels of " +
                        predictor.engine().name);
  }
  note_parts_of_step(predictor.engine(), run);
  if (question.quantize == Quantize::none) return run;
  HEADROOM_ASSIGN(const timing::DecodePredictor plain, predictor_with(Quantize::none));
  HEADROOM_ASSIGN(const DecodeStep unchanged, plain.step(question.batch));
  run.unchanged_ms = unchanged.step.seconds * 1e3;
  note_quantized(predictor, question, run);
  return run;
}

}  // namespace headroom::ops
