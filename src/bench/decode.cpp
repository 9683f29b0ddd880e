#include "bench/decode.h"

#include <algorithm>
#include <cmath>

#include "model/load.h"
#include "step/inference.h"
#include "timing/call.h"

namespace headroom::bench {

namespace {

using timing::Call;
using timing::OperatorClass;
using timing::PredictedTime;

// Sizes of the model as its decode graph has them.
struct Sizes {
  int64_t batch = 1;
  int64_t context = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
  double element_bytes = 2;
  device::Rate rate = device::Rate::bf16;
};

// A class of kernels while it is being summed. Errors of one law go one way, so that the ends of
// intervals add up within a class.
class Sum {
 public:
  explicit Sum(const timing::TimingModel& model, const device::Device& device)
      : model_(model), device_(device) {}

  Result<void> add(const Call& call, int64_t times = 1) {
    HEADROOM_ASSIGN(const PredictedTime time, model_.predict(call, device_));
    const auto count = static_cast<double>(times);
    kernels_.flops += count * call.flops;
    kernels_.bytes += count * call.bytes;
    add_time(time.seconds_low * count, time.seconds * count, time.seconds_high * count);
    roofline_seconds_ += count * time.roofline_seconds;
    kernels_.provenance = std::max(kernels_.provenance, time.provenance);
    if (time.seconds * count > longest_) {
      longest_ = time.seconds * count;
      kernels_.basis = time.basis;
    }
    return {};
  }
  void add_time(double low, double middle, double high) {
    kernels_.time.low_seconds += low;
    kernels_.time.seconds += middle;
    kernels_.time.high_seconds += high;
  }
  [[nodiscard]] const KernelTime& kernels() const { return kernels_; }
  [[nodiscard]] double roofline_seconds() const { return roofline_seconds_; }

 private:
  const timing::TimingModel& model_;
  const device::Device& device_;
  KernelTime kernels_;
  double longest_ = 0;
  double roofline_seconds_ = 0;
};

// A product with a weight: m is the batch, the rest follows from what it writes and computes.
// Nothing for products without one (the angles of rotary embedding, which an engine keeps).
std::optional<timing::GemmShape> product_of(const step::OperatorCall& call, const Sizes& sizes) {
  if (call.kind == op::OpKind::bmm || call.kind == op::OpKind::baddbmm) return std::nullopt;
  const double rows = static_cast<double>(sizes.batch);
  const double n = static_cast<double>(call.bytes_written) / (rows * sizes.element_bytes);
  const double k = n > 0 ? call.flops / (2 * rows * n) : 0;
  if (!(n >= 1) || !(k >= 1)) return std::nullopt;
  return timing::GemmShape{.m = sizes.batch,
                           .n = static_cast<int64_t>(std::llround(n)),
                           .k = static_cast<int64_t>(std::llround(k))};
}

struct Shapes {
  std::vector<timing::GemmShape> products;
  int64_t layers = 0;  // with attention
  int64_t heads = 0;
  int64_t inner = 0;  // the widest input of a product: of the layer's second half
};

Shapes shapes_of(const step::StepTrace& trace, const Sizes& sizes) {
  Shapes shapes;
  for (const step::OperatorCall& call : trace.calls) {
    if (call.phase != step::Phase::forward) continue;
    const op::OpGroup group = op::group_of(call.kind);
    if (group == op::OpGroup::attention) {
      const double width = static_cast<double>(call.bytes_written) /
                           (static_cast<double>(sizes.batch) * sizes.element_bytes);
      shapes.heads = std::max<int64_t>(1, std::llround(width) / sizes.head_dim);
      ++shapes.layers;
    } else if (group == op::OpGroup::gemm) {
      if (const auto product = product_of(call, sizes)) {
        shapes.inner = std::max(shapes.inner, product->k);
        shapes.products.push_back(*product);
      }
    }
  }
  return shapes;
}

// What is left in a serving engine: two norms, rotary embedding, the cache's new entries and an
// activation a layer; the embedding, the last norm.
Result<void> add_other(const Shapes& shapes, const Sizes& sizes, Sum& sum) {
  const double e = sizes.element_bytes;
  const int64_t hidden = shapes.heads * sizes.head_dim;
  const double rows = static_cast<double>(sizes.batch);
  const auto bytes = [&](int64_t width, double passes) {
    return passes * rows * static_cast<double>(width) * e;
  };
  const timing::RowsShape row{sizes.batch, hidden};
  const int64_t kv_width = 2 * sizes.kv_heads * sizes.head_dim;
  HEADROOM_TRY(
      sum.add(rows_call(OperatorClass::rms_norm, row, bytes(hidden, 2)), 2 * shapes.layers + 1));
  HEADROOM_TRY(sum.add(rows_call(OperatorClass::rope, row, bytes(hidden, 4)), shapes.layers));
  HEADROOM_TRY(
      sum.add(rows_call(OperatorClass::elementwise, {sizes.batch, kv_width}, bytes(kv_width, 2)),
              shapes.layers));
  HEADROOM_TRY(sum.add(rows_call(OperatorClass::gated_activation, {sizes.batch, shapes.inner},
                                 bytes(shapes.inner, 3)),
                       shapes.layers));
  return sum.add(rows_call(OperatorClass::embedding, row, bytes(hidden, 2)));
}

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

Result<model::Graph> decode_graph(const text::JsonView& config, const DecodeQuestion& question,
                                  int64_t batch) {
  HEADROOM_ASSIGN(const model::Family* family, model::find_family(config));
  if (family->task != model::Task::causal_lm) {
    return Error{ErrorCode::usage,
                 "a model that writes no text token by token has no decode step",
                 {},
                 "ask about a causal language model"};
  }
  model::BuildOptions options;
  options.batch = batch;
  options.sequence = 1;
  options.past = question.context - 1;
  options.use_cache = true;
  options.training = false;
  options.labels = false;
  return model::build_graph(config, options);
}

Result<Sizes> sizes_of(const model::Graph& graph, const DecodeQuestion& question, int64_t batch) {
  for (const model::GraphInput& input : graph.inputs) {
    if (!input.name.starts_with("past_key_values.") || input.shape.size() != 4) continue;
    const bool half = question.weights == op::DType::f16;
    const bool whole = question.weights == op::DType::f32;
    return Sizes{.batch = batch,
                 .context = question.context,
                 .kv_heads = std::max<int64_t>(1, input.shape[1]),
                 .head_dim = std::max<int64_t>(1, input.shape[3]),
                 .element_bytes = static_cast<double>(op::element_size(question.weights)),
                 .rate = half    ? device::Rate::fp16
                         : whole ? device::Rate::fp32
                                 : device::Rate::bf16};
  }
  return Error{
      ErrorCode::unavailable,
      "decode steps of this family are not predicted yet: its graph has no key-value cache",
      {},
      {}};
}

Bytes weight_bytes(const model::Graph& graph, op::DType weights) {
  Bytes bytes;
  for (const model::Parameter& parameter : graph.parameters) {
    if (parameter.tied_to) continue;
    bytes +=
        Bytes(op::product(parameter.shape) * op::element_size(parameter.dtype.value_or(weights)));
  }
  return bytes;
}

// Sequences whose cache fits beside the weights.
int64_t largest_batch(const device::Device& device, Bytes weights, int64_t kv_of_one) {
  if (!device.usable_memory.known() || kv_of_one <= 0) return 0;
  const double budget = kMemoryShare * static_cast<double>(device.usable_memory.value.count) -
                        static_cast<double>(weights.count);
  if (budget < static_cast<double>(kv_of_one)) return 0;
  return std::min(kMostBatch, static_cast<int64_t>(budget / static_cast<double>(kv_of_one)));
}

std::vector<int64_t> usual_batches(int64_t largest) {
  std::vector<int64_t> batches;
  for (int64_t batch = 1; batch <= std::max<int64_t>(1, std::min<int64_t>(largest, 1024));
       batch *= 2) {
    batches.push_back(batch);
  }
  if (largest > batches.back() && largest <= 2048) batches.push_back(largest);
  return batches;
}

// What the counting below would get wrong.
Result<void> refuse_unmodelled(const text::JsonView& config, const model::Graph& graph,
                               const DecodeQuestion& question) {
  const auto unavailable = [](std::string message, std::string hint) {
    return Error{ErrorCode::unavailable, std::move(message), {}, std::move(hint)};
  };
  for (const model::Parameter& parameter : graph.parameters) {
    if (parameter.role != model::ParameterRole::expert) continue;
    return unavailable("decode steps of a mixture of experts are not predicted yet",
                       "which experts a batch wakes, and so what is read, is not modelled");
  }
  HEADROOM_ASSIGN(const auto window, config.optional_int("sliding_window", 0, int64_t{1} << 53));
  HEADROOM_ASSIGN(const auto is_used, config.optional_bool("use_sliding_window"));
  if (window && is_used.value_or(true) && *window < question.context) {
    return unavailable("contexts beyond the sliding window of " + std::to_string(*window) +
                           " tokens are not predicted yet",
                       "ask for a --context within it");
  }
  return {};
}

Result<DecodeStep> predict_step(const text::JsonView& config, const DecodeQuestion& question,
                                const timing::TimingModel& model, const timing::Engine& engine,
                                int64_t batch) {
  HEADROOM_ASSIGN(const model::Graph graph, decode_graph(config, question, batch));
  HEADROOM_ASSIGN(const Sizes sizes, sizes_of(graph, question, batch));
  step::InferenceOptions options;
  options.weights = question.weights;
  HEADROOM_ASSIGN(const step::StepTrace trace, step::trace_inference(graph, options));
  const Shapes shapes = shapes_of(trace, sizes);
  if (shapes.layers == 0 || shapes.products.empty()) {
    return Error{ErrorCode::unavailable,
                 "decode steps of this model are not predicted yet: no fused attention operator",
                 {},
                 {}};
  }
  Sum attention(model, question.device);
  const timing::AttentionShape one{.batch = batch,
                                   .heads = shapes.heads,
                                   .kv_heads = sizes.kv_heads,
                                   .head_dim = sizes.head_dim,
                                   .context = question.context};
  HEADROOM_TRY(attention.add(attention_call(one, sizes.rate, sizes.element_bytes), shapes.layers));
  Sum matmul(model, question.device);
  for (const timing::GemmShape& product : shapes.products) {
    HEADROOM_TRY(matmul.add(gemm_call(product, sizes.rate, sizes.element_bytes)));
  }
  Sum other(model, question.device);
  HEADROOM_TRY(add_other(shapes, sizes, other));
  const double rows = static_cast<double>(batch);
  const double spread = std::exp(engine.half_width_log);
  const double sampling =
      engine.sampling_seconds_per_logit * rows * static_cast<double>(shapes.products.back().n);
  other.add_time(sampling / spread, sampling, sampling * spread);

  DecodeStep result;
  result.batch = batch;
  result.kv_cache = Bytes(step::kv_cache_bytes(graph, question.weights));
  result.attention = attention.kernels();
  result.matmul = matmul.kernels();
  result.other = other.kernels();
  const double host = engine.host_base_seconds + engine.host_seconds_per_sequence * rows;
  result.host = {host / spread, host, host * spread};
  result.step =
      total({&result.attention.time, &result.matmul.time, &result.other.time, &result.host});
  result.roofline_seconds = attention.roofline_seconds() + matmul.roofline_seconds();
  return result;
}

const DecodeStep* step_of(const std::vector<DecodeStep>& steps, int64_t batch) {
  const auto found = std::find_if(steps.begin(), steps.end(),
                                  [&](const DecodeStep& step) { return step.batch == batch; });
  return found == steps.end() ? nullptr : &*found;
}

// measured = offset + slope * predicted, with the least squared relative error.
struct Line {
  double offset = 0;
  double slope = 1;
};

Result<Line> line_through(const std::vector<MeasuredStep>& points,
                          const std::vector<DecodeStep>& steps) {
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
  for (const MeasuredStep& point : points) {
    const DecodeStep* step = step_of(steps, point.batch);
    HEADROOM_CHECK(step != nullptr, "points are among the steps");
    const double a = 1 / point.seconds;
    const double b = step->step.seconds / point.seconds;
    uu += a * a;
    uv += a * b;
    vv += b * b;
    u += a;
    v += b;
  }
  const double determinant = uu * vv - uv * uv;
  const Line line{(u * vv - v * uv) / determinant, (uu * v - uv * u) / determinant};
  if (!(determinant > 1e-12 * uu * vv) || !(line.slope > 0) || !std::isfinite(line.offset)) {
    return Error{ErrorCode::bad_input,
                 "the measured steps do not grow with the predicted ones",
                 {},
                 "give points of this model on this device, at two batches or more"};
  }
  return line;
}

Result<void> correct(std::vector<DecodeStep>& steps, const std::vector<MeasuredStep>& points) {
  HEADROOM_ASSIGN(const Line line, line_through(points, steps));
  const auto [least, most] = std::minmax_element(
      points.begin(), points.end(), [](const auto& a, const auto& b) { return a.batch < b.batch; });
  for (DecodeStep& step : steps) {
    const double corrected = line.offset + line.slope * step.step.seconds;
    if (!(corrected > 0)) continue;  // far below the points: the prediction stands
    const bool is_inside = step.batch >= least->batch && step.batch <= most->batch;
    const double below =
        is_inside ? std::exp(-kCorrectedHalfWidth) : step.step.low_seconds / step.step.seconds;
    const double above =
        is_inside ? std::exp(kCorrectedHalfWidth) : step.step.high_seconds / step.step.seconds;
    step.step = {corrected * below, corrected, corrected * above};
    step.provenance = is_inside ? Provenance::calibrated : Provenance::extrapolated;
  }
  return {};
}

std::optional<int64_t> saturation_of(const std::vector<DecodeStep>& steps) {
  // What the largest batch that fits has is the plateau; that it reaches itself says nothing.
  const auto last =
      std::find_if(steps.rbegin(), steps.rend(), [](const DecodeStep& step) { return step.fits; });
  if (std::distance(last, steps.rend()) < 3) return std::nullopt;
  const double plateau = last->attention.bytes_per_second();
  for (const DecodeStep& step : steps) {
    if (&step == &*last) break;
    if (step.attention.bytes_per_second() >= kSaturated * plateau) return step.batch;
  }
  return std::nullopt;
}

Result<void> check(const DecodeQuestion& question) {
  const auto usage = [](std::string words) {
    return Error{ErrorCode::usage, std::move(words), {}, {}};
  };
  if (question.context < 2 || question.context > kMostContext) {
    return usage("--context goes from 2 to 16777216 tokens");
  }
  if (question.batches.size() > kMostBatches) return usage("--batches takes 64 at most");
  for (const int64_t batch : question.batches) {
    if (batch < 1 || batch > kMostBatch) return usage("a batch goes from 1 to 65536 sequences");
  }
  if (question.points.size() == 1 || question.points.size() > kMostBatches) {
    return usage("--points takes from 2 to 64 measured steps");
  }
  for (const MeasuredStep& point : question.points) {
    if (point.batch < 1 || point.batch > kMostBatch || !(point.seconds > 0) ||
        !(point.seconds < 1e6)) {
      return usage("a point has a batch from 1 to 65536, and a time");
    }
  }
  return {};
}

}  // namespace

Result<DecodeAnswer> predict_decode(const text::JsonView& config, const DecodeQuestion& question,
                                    const timing::TimingModel& model) {
  HEADROOM_TRY(check(question));
  if (model.engines().empty()) {
    return Error{ErrorCode::unavailable, "no serving engine is known", {}, {}};
  }
  const timing::Engine& engine = model.engines().front();
  HEADROOM_ASSIGN(const model::Graph graph, decode_graph(config, question, 1));
  HEADROOM_TRY(refuse_unmodelled(config, graph, question));
  HEADROOM_ASSIGN(const Sizes sizes, sizes_of(graph, question, 1));
  DecodeAnswer answer;
  answer.model = question.model;
  answer.device = question.device.name;
  answer.context = question.context;
  answer.points = question.points.size();
  answer.dtype = std::string(op::dtype_name(question.weights));
  answer.engine = engine.name;
  answer.engine_source = engine.source;
  answer.weights = weight_bytes(graph, question.weights);
  answer.largest_batch =
      largest_batch(question.device, answer.weights, step::kv_cache_bytes(graph, question.weights));
  answer.peak_bytes_per_second = question.device.bandwidth.value.value;
  answer.peak_flops_per_second = question.device.rate(sizes.rate).value.value;
  std::vector<int64_t> batches = question.batches;
  if (batches.empty()) batches = usual_batches(answer.largest_batch);
  for (const MeasuredStep& point : question.points) batches.push_back(point.batch);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  for (const int64_t batch : batches) {
    HEADROOM_ASSIGN(DecodeStep step, predict_step(config, question, model, engine, batch));
    step.fits = batch <= answer.largest_batch;
    answer.steps.push_back(std::move(step));
  }
  if (!question.points.empty()) HEADROOM_TRY(correct(answer.steps, question.points));
  answer.saturation_batch = saturation_of(answer.steps);
  return answer;
}

}  // namespace headroom::bench
