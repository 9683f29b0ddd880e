#include "timing/decode_step.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "timing/decode_calls.h"
#include "timing/decode_graph.h"
#include "timing/decode_shapes.h"
#include "timing/operator_work.h"

namespace headroom::timing {

namespace {

// A class of kernels while it is being summed.
class Sum {
 public:
  explicit Sum(const TimingModel& model, const device::Device& device)
      : model_(model), device_(device) {}

  Result<void> add(const std::vector<CountedCall>& calls) {
    for (const CountedCall& one : calls) HEADROOM_TRY(add(one));
    return {};
  }
  Result<void> add(const CountedCall& one) {
    HEADROOM_ASSIGN(PredictedTime time, model_.predict(one.call, device_));
    if (one.is_other_kernel) {
      // On top of the law's own.
      const auto wider = [&](double factor) {
        return std::exp(std::hypot(std::log(factor), kOtherKernelHalfWidthLog));
      };
      time.seconds_low = time.seconds / wider(time.seconds / time.seconds_low);
      time.seconds_high = time.seconds * wider(time.seconds_high / time.seconds);
      time.provenance = std::max(time.provenance, Provenance::extrapolated);
    }
    const auto count = static_cast<double>(one.times);
    flops_ += count * one.call.flops;
    bytes_ += count * one.call.bytes;
    time_.add(time, one.times);
    roofline_seconds_ += count * time.roofline_seconds;
    return {};
  }
  void add_time(double low, double middle, double high) {
    time_.low += low;
    time_.middle += middle;
    time_.high += high;
  }
  [[nodiscard]] KernelTime kernels() const {
    KernelTime made;
    made.time = {.low_seconds = time_.low, .seconds = time_.middle, .high_seconds = time_.high};
    made.flops = flops_;
    made.bytes = bytes_;
    made.provenance = time_.provenance;
    made.basis = time_.basis;
    return made;
  }
  [[nodiscard]] double roofline_seconds() const { return roofline_seconds_; }

 private:
  const TimingModel& model_;
  const device::Device& device_;
  TimeSum time_{.floor = Provenance::calibrated};
  double flops_ = 0;
  double bytes_ = 0;
  double roofline_seconds_ = 0;
};

double squared(double x) { return x * x; }

// The classes err apart from each other: their half widths add up as independent errors do.
TimeInterval total(std::initializer_list<const TimeInterval*> parts) {
  TimeInterval whole;
  double below = 0;
  double above = 0;
  for (const TimeInterval* part : parts) {
    whole.seconds += part->seconds;
    below += squared(part->seconds - part->low_seconds);
    above += squared(part->high_seconds - part->seconds);
  }
  whole.low_seconds = std::max(0.0, whole.seconds - std::sqrt(below));
  whole.high_seconds = whole.seconds + std::sqrt(above);
  return whole;
}

// The type of products' weights, as timing laws name it. What is unpacked has no product of its own
// type: four bits are four bits, whoever made them.
device::Rate weight_type(const DecodeVariant& variant, device::Rate unquantized) {
  if (!variant.weight_element_bytes) return unquantized;
  if (variant.product_rate) return *variant.product_rate;
  return *variant.weight_element_bytes < 1 ? device::Rate::fp4 : device::Rate::int8;
}

// PyTorch makes keys and values of all latents anew in each step, and its linear attention is some
// hundred kernels.
Result<void> refuse_eager(const DecodeSizes& sizes, const DecodeOperators& shapes) {
  if (!sizes.latent && shapes.linear_layers == 0) return {};
  return Error{ErrorCode::unavailable,
               std::string("decode steps with ") +
                   (sizes.latent ? "latent attention (MLA)" : "linear attention") +
                   " are predicted as serving engines have them, not in PyTorch's eager mode",
               {},
               "a GPU as --device"};
}

Result<DecodeOperators> counted(const text::JsonView& config, const model::Graph& graph,
                                const DecodeSizes& sizes) {
  if (!sizes.latent) return operators_of(graph, sizes);
  HEADROOM_ASSIGN(const model::Graph products, graph_without_past(config, sizes.batch));
  return operators_of(products, sizes);
}

}  // namespace

Result<DecodePredictor> DecodePredictor::make(const text::JsonView& config,
                                              const device::Device& device,
                                              const DecodeOptions& options,
                                              const TimingModel& model) {
  HEADROOM_CHECK(options.context >= 2 && options.context <= kMostContext, "a context of tokens");
  HEADROOM_CHECK(options.variant.tensor_parallel >= 1 && options.variant.pipeline_parallel >= 1 &&
                     options.variant.tensor_parallel <= kMostParallel &&
                     options.variant.pipeline_parallel <= kMostParallel,
                 "devices of a server");
  const Engine* engine = model.engine_on(device.name, options.variant.engine);
  if (engine == nullptr) {
    return Error{ErrorCode::unavailable, "no serving engine is known", {}, {}};
  }
  HEADROOM_TRY(refuse_beyond_positions(config, options));
  HEADROOM_ASSIGN(const model::Graph graph, decode_graph(config, options, 1));
  HEADROOM_ASSIGN(DecodeSizes sizes, sizes_of(graph, config, options, 1));
  HEADROOM_TRY(refuse_beyond_window(config, options));
  DecodePredictor made(config, device, options, model);
  made.engine_ = engine;
  auto& product_rate = made.options_.variant.product_rate;
  if (product_rate && !device.rate(*product_rate).known()) product_rate.reset();
  made.options_.variant.quantizes_within =
      product_rate == device::Rate::int8 && options.weights == op::DType::f32 &&
      model.law_for(OperatorClass::linear_int8, device.name) != nullptr;
  made.options_.is_eager = made.engine_->is_eager;
  sizes.variant = made.options_.variant;
  made.rate_ = sizes.rate;
  HEADROOM_ASSIGN(const DecodeOperators shapes, counted(config, graph, sizes));
  if (made.options_.is_eager) HEADROOM_TRY(refuse_eager(sizes, shapes));
  made.shapes_ = std::make_shared<const DecodeShapes>(DecodeShapes{shapes, sizes});
  made.weights_ = Bytes(weight_bytes(graph, options.weights).count / devices_of(options));
  if (options.variant.weight_element_bytes) {
    made.weights_ -= Bytes(saved_weight_bytes(shapes, sizes) / devices_of(options));
  }
  made.kv_of_one_ = cache_bytes(graph, options, shapes, sizes);
  made.largest_batch_ = largest_batch_of(device, made.weights_, made.kv_of_one_.count);
  return made;
}

Result<DecodeWork> decode_work(const text::JsonView& config, const DecodeOptions& options,
                               int64_t batch) {
  HEADROOM_CHECK(batch >= 1 && batch <= kMostBatch, "a batch of sequences");
  HEADROOM_CHECK(options.context >= 2 && options.context <= kMostContext, "a context of tokens");
  HEADROOM_TRY(refuse_beyond_positions(config, options));
  HEADROOM_ASSIGN(const model::Graph graph, decode_graph(config, options, batch));
  HEADROOM_ASSIGN(const DecodeSizes sizes, sizes_of(graph, config, options, batch));
  HEADROOM_TRY(refuse_beyond_window(config, options));
  HEADROOM_ASSIGN(const DecodeOperators shapes, counted(config, graph, sizes));
  if (options.is_eager) HEADROOM_TRY(refuse_eager(sizes, shapes));
  DecodeWork work = work_of(shapes, sizes, options.is_eager);
  work.kv_cache = cache_bytes(graph, options, shapes, sizes);
  return work;
}

// Products and attention are alike for all batches but for their rows; what eager mode does beside
// them is counted anew.
Result<DecodeWork> DecodePredictor::work(int64_t batch) const {
  if (options_.is_eager) return decode_work(config_, options_, batch);
  HEADROOM_CHECK(batch >= 1 && batch <= kMostBatch, "a batch of sequences");
  DecodeSizes sizes = shapes_->sizes;
  sizes.batch = batch;
  DecodeWork work = work_of(shapes_->shapes, sizes, false);
  work.kv_cache = kv_of_one_ * batch;
  return work;
}

TimeInterval DecodePredictor::host_of(int64_t batch, int64_t operators, double kernels) const {
  if (const auto& share = options_.variant.host_share) {
    const double given = kernels * *share / (1 - *share);
    return {given, given, given};
  }
  const double host = engine_->host_base_seconds +
                      engine_->host_seconds_per_sequence * static_cast<double>(batch) +
                      engine_->host_seconds_per_operator * static_cast<double>(operators);
  const double spread = std::exp(engine_->half_width_log);
  // What no step that it was learned from could tell.
  const double unseen = engine_->least_step_seconds - kernels;
  return {host / spread, host, std::max(host * spread, unseen)};
}

Result<DecodeStep> DecodePredictor::step(int64_t batch) const {
  HEADROOM_ASSIGN(const DecodeWork work, this->work(batch));
  Sum attention(*model_, *device_);
  HEADROOM_TRY(attention.add(work.attention));
  Sum collectives(*model_, *device_);
  HEADROOM_TRY(collectives.add(work.collectives));
  Sum matmul(*model_, *device_);
  HEADROOM_TRY(matmul.add(work.matmul));
  Sum other(*model_, *device_);
  HEADROOM_TRY(other.add(work.other));
  Sum quantize(*model_, *device_);
  HEADROOM_TRY(quantize.add(work.quantize));
  const double rows = static_cast<double>(batch);
  const double spread = std::exp(engine_->half_width_log);
  const double sampling =
      engine_->sampling_seconds_per_logit * rows * static_cast<double>(work.vocabulary);
  other.add_time(sampling / spread, sampling, sampling * spread);

  DecodeStep result;
  result.batch = batch;
  result.fits = batch <= largest_batch_;
  result.kv_cache = work.kv_cache;
  result.attention = attention.kernels();
  result.matmul = matmul.kernels();
  result.other = other.kernels();
  result.quantize = quantize.kernels();
  result.collectives = collectives.kernels();
  if (const auto& share = options_.variant.attention_share) {
    const auto seconds = [&](size_t i) {
      return result.attention.bytes / ((*share)[i] * peak_bytes_per_second());
    };
    result.attention.time = {seconds(2), seconds(1), seconds(0)};
  }
  const double kernels = result.parts_seconds();
  result.host = host_of(batch, work.operators, kernels);
  result.step = total({&result.attention.time, &result.matmul.time, &result.other.time,
                       &result.quantize.time, &result.collectives.time, &result.host});
  result.step = as_on_servers(result.step);
  result.step.high_seconds = std::max(result.step.high_seconds, kernels + result.host.high_seconds);
  result.roofline_seconds = attention.roofline_seconds() + matmul.roofline_seconds();
  return result;
}

Result<TimeInterval> DecodePredictor::rows(int64_t rows) const {
  HEADROOM_CHECK(rows >= 1 && rows <= kMostContext, "rows of a step");
  Sum sum(*model_, *device_);
  HEADROOM_TRY(sum.add(row_calls(shapes_->shapes, shapes_->sizes, rows, options_.is_eager)));
  return as_on_servers(sum.kernels().time);
}

Result<TimeInterval> DecodePredictor::prompt_attention(int64_t tokens) const {
  HEADROOM_CHECK(tokens >= 1 && tokens <= kMostContext, "a prompt of tokens");
  Sum sum(*model_, *device_);
  HEADROOM_TRY(sum.add(prompt_attention_call(shapes_->shapes, shapes_->sizes, tokens)));
  return as_on_servers(sum.kernels().time);
}

TimeInterval DecodePredictor::as_on_servers(TimeInterval time) const {
  const auto& width = engine_->step_half_width;
  if (!width) return time;
  const bool has_experts = !shapes_->shapes.experts.empty();
  const double spread = std::exp(has_experts ? width->experts_log : width->dense_log);
  const TimeInterval judged{time.seconds / spread, time.seconds, time.seconds * spread};
  if (width->judges(device_->name, weight_type(options_.variant, rate_))) return judged;
  return {std::min(time.low_seconds, judged.low_seconds), time.seconds,
          std::max(time.high_seconds, judged.high_seconds)};
}

int64_t DecodePredictor::layers() const {
  return shapes_->shapes.layers + shapes_->shapes.linear_layers;
}
int64_t DecodePredictor::heads() const { return shapes_->shapes.heads; }
bool DecodePredictor::has_latent_attention() const { return shapes_->sizes.latent.has_value(); }
int64_t DecodePredictor::kv_heads() const { return shapes_->sizes.kv_heads; }
int64_t DecodePredictor::head_dim() const { return shapes_->sizes.head_dim; }

double DecodePredictor::peak_bytes_per_second() const { return device_->bandwidth.value.value; }

double DecodePredictor::peak_flops_per_second() const { return device_->rate(rate_).value.value; }

}  // namespace headroom::timing
