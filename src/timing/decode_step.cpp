#include "timing/decode_step.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "model/load.h"
#include "step/inference.h"
#include "timing/call.h"

namespace headroom::timing {

namespace {

// Sizes of the model as its decode graph has them.
struct Sizes {
  int64_t batch = 1;
  int64_t context = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
  double element_bytes = 2;
  device::Rate rate = device::Rate::bf16;
  DecodeVariant variant;

  [[nodiscard]] double cache_element_bytes() const {
    return variant.cache_element_bytes.value_or(element_bytes);
  }
  // Elements that one token has in the cache of a layer, as the model has them.
  [[nodiscard]] double model_cache_elements() const {
    return 2 * static_cast<double>(kv_heads) * static_cast<double>(head_dim);
  }
  // And as they are, on one device: heads that are fewer than devices are there several times.
  [[nodiscard]] double cache_elements() const {
    if (variant.latent) return static_cast<double>(*variant.latent);
    const int64_t heads = variant.kv_heads.value_or(kv_heads);
    return 2 * static_cast<double>(shared(heads)) * static_cast<double>(head_dim);
  }
  // Of so many, what one of the tensor parallel devices has.
  [[nodiscard]] int64_t shared(int64_t count) const {
    return std::max<int64_t>(1, (count + variant.tensor_parallel - 1) / variant.tensor_parallel);
  }
  [[nodiscard]] int64_t kept_context() const {
    return std::min(context, variant.window.value_or(context));
  }
};

// A class of kernels while it is being summed. Errors of one law go one way, so that the ends of
// intervals add up within a class.
class Sum {
 public:
  explicit Sum(const TimingModel& model, const device::Device& device)
      : model_(model), device_(device) {}

  Result<void> add(const std::vector<CountedCall>& calls) {
    for (const CountedCall& one : calls) HEADROOM_TRY(add(one.call, one.times));
    return {};
  }
  Result<void> add(const Call& call, int64_t times = 1) {
    HEADROOM_ASSIGN(const PredictedTime time, model_.predict(call, device_));
    const auto count = static_cast<double>(times);
    kernels_.flops += count * call.flops;
    kernels_.bytes += count * call.bytes;
    add_time(time.seconds_low * count, time.seconds * count, time.seconds_high * count);
    roofline_seconds_ += count * time.roofline_seconds;
    if (time.provenance > kernels_.provenance)
      longest_ = 0;  // why the whole is no better than that
    kernels_.provenance = std::max(kernels_.provenance, time.provenance);
    if (time.provenance == kernels_.provenance && time.seconds * count > longest_) {
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
  const TimingModel& model_;
  const device::Device& device_;
  KernelTime kernels_;
  double longest_ = 0;
  double roofline_seconds_ = 0;
};

// A product with a weight: m is the batch, the rest follows from what it writes and computes.
// Nothing for products without one (the angles of rotary embedding, which an engine keeps).
std::optional<GemmShape> product_of(const step::OperatorCall& call, const Sizes& sizes) {
  if (call.kind == op::OpKind::bmm || call.kind == op::OpKind::baddbmm) return std::nullopt;
  const double rows = static_cast<double>(sizes.batch);
  const double n = static_cast<double>(call.bytes_written) / (rows * sizes.element_bytes);
  const double k = n > 0 ? call.flops / (2 * rows * n) : 0;
  if (!(n >= 1) || !(k >= 1)) return std::nullopt;
  return GemmShape{.m = sizes.batch,
                   .n = static_cast<int64_t>(std::llround(n)),
                   .k = static_cast<int64_t>(std::llround(k))};
}

// A product with the weights of all experts of a layer: each token is multiplied by `top_k` of
// them.
struct ExpertProduct {
  int64_t experts = 1;
  int64_t top_k = 1;
  int64_t n = 1;  // of one expert
  int64_t k = 1;
};

// Experts that a batch wakes, every one as likely as another: E (1 - (1 - k/E)^B).
double awake(const ExpertProduct& product, int64_t batch) {
  const auto experts = static_cast<double>(product.experts);
  const double asleep =
      std::pow(1 - static_cast<double>(product.top_k) / experts, static_cast<double>(batch));
  return std::max(static_cast<double>(product.top_k), experts * (1 - asleep));
}

// One grouped kernel: as a product whose weight is that of the experts that are awake, with their
// mean number of rows.
GemmShape grouped_shape(const ExpertProduct& product, int64_t batch) {
  const double count = awake(product, batch);
  const double rows = static_cast<double>(batch * product.top_k) / count;
  return GemmShape{.m = std::max<int64_t>(1, std::llround(rows)),
                   .n = std::llround(count * static_cast<double>(product.n)),
                   .k = product.k};
}

// A kernel of eager mode that is neither product nor attention: so many bytes in rows of the batch.
struct EagerKernel {
  OperatorClass kind{};
  int64_t width = 1;  // elements a row, of what it reads or writes, whichever is more
  double bytes = 0;
  auto operator<=>(const EagerKernel&) const = default;
};

// A product with a weight. Of tensor parallel devices each has a part of its outputs, or else of
// what it multiplies: then what they give are parts of a sum.
struct Product {
  GemmShape shape;
  bool is_behind_attention = false;
};

struct Shapes {
  std::vector<Product> products;
  std::vector<ExpertProduct> experts;  // two a layer: gate and up in one, and down
  int64_t layers = 0;                  // with attention
  int64_t heads = 0;
  int64_t hidden = 0;  // what a layer passes on: as wide as the heads together, or not
  int64_t inner = 0;   // the widest input of a product: of the layer's second half
  std::map<EagerKernel, int64_t> eager;  // and how often
  int64_t operators = 0;
};

Error unknown_experts() {
  return Error{ErrorCode::unavailable,
               "decode steps of this mixture of experts are not predicted yet",
               {},
               "its experts are not multiplied in groups"};
}

// The stacked weights [experts, in, out] or [experts, out, in], in the order of the layers.
std::vector<const model::Parameter*> expert_weights(const model::Graph& graph) {
  std::vector<const model::Parameter*> weights;
  for (const model::Parameter& parameter : graph.parameters) {
    if (parameter.role == model::ParameterRole::expert && parameter.shape.size() == 3) {
      weights.push_back(&parameter);
    }
  }
  return weights;
}

Result<ExpertProduct> expert_product_of(const step::OperatorCall& call,
                                        const model::Parameter& weight, const Sizes& sizes) {
  const auto of_one = static_cast<double>(weight.shape[1]) * static_cast<double>(weight.shape[2]);
  const double rows = call.flops / (2 * of_one);  // batch x top_k
  const double n = static_cast<double>(call.bytes_written) / (rows * sizes.element_bytes);
  ExpertProduct product;
  product.experts = weight.shape[0];
  product.top_k = std::llround(rows / static_cast<double>(sizes.batch));
  product.n = std::llround(n);
  product.k = n >= 1 ? std::llround(of_one / n) : 0;
  if (product.top_k < 1 || product.top_k > product.experts || product.n < 1 || product.k < 1) {
    return unknown_experts();
  }
  return product;
}

OperatorClass eager_class(op::OpGroup group) {
  switch (group) {
    case op::OpGroup::normalization:
      return OperatorClass::normalization;
    case op::OpGroup::softmax:
      return OperatorClass::softmax;
    case op::OpGroup::embedding:
      return OperatorClass::embedding;
    default:
      return OperatorClass::elementwise;
  }
}

// Of a call that was traced with elements of `traced_bytes`, as it is with those of
// `element_bytes`. The graph's cache grows by a copy of itself; a cache that is written in place
// takes the new entries alone.
std::optional<EagerKernel> eager_kernel(const step::OperatorCall& call, const Sizes& sizes,
                                        double traced_bytes, double element_bytes) {
  const double rows = static_cast<double>(sizes.batch);
  double read = static_cast<double>(call.bytes_read) / traced_bytes;
  double written = static_cast<double>(call.bytes_written) / traced_bytes;
  const double entry = rows * static_cast<double>(sizes.kv_heads * sizes.head_dim);
  const bool grows_cache =
      call.kind == op::OpKind::cat && written >= entry * static_cast<double>(sizes.context);
  if (grows_cache) read = written = entry;
  if (!(read + written > 0)) return std::nullopt;
  EagerKernel kernel;
  kernel.kind = eager_class(op::group_of(call.kind));
  kernel.width = std::max<int64_t>(1, std::llround(std::max(read, written) / rows));
  kernel.bytes = (read + written) * element_bytes;
  return kernel;
}

// Traced in bfloat16 whatever the type, since shapes do not depend on it: in float32 PyTorch's CUDA
// kernels refuse grouped heads, which engines' and the CPU's do not.
Result<Shapes> shapes_of(const model::Graph& graph, Sizes sizes) {
  step::InferenceOptions inference;
  inference.weights = op::DType::bf16;
  const double element_bytes = sizes.element_bytes;
  sizes.element_bytes = static_cast<double>(op::element_size(inference.weights));
  HEADROOM_ASSIGN(const step::StepTrace trace, step::trace_inference(graph, inference));
  const std::vector<const model::Parameter*> weights = expert_weights(graph);
  Shapes shapes;
  bool is_behind_attention = false;
  for (const step::OperatorCall& call : trace.calls) {
    if (call.phase != step::Phase::forward) continue;
    ++shapes.operators;
    const op::OpGroup group = op::group_of(call.kind);
    if (group == op::OpGroup::attention) {
      const double width = static_cast<double>(call.bytes_written) /
                           (static_cast<double>(sizes.batch) * sizes.element_bytes);
      shapes.heads = std::max<int64_t>(1, std::llround(width) / sizes.head_dim);
      ++shapes.layers;
      is_behind_attention = true;
    } else if (call.kind == op::OpKind::grouped_mm) {
      if (shapes.experts.size() == weights.size()) return unknown_experts();
      HEADROOM_ASSIGN(const ExpertProduct product,
                      expert_product_of(call, *weights[shapes.experts.size()], sizes));
      shapes.experts.push_back(product);
    } else if (group == op::OpGroup::gemm) {
      if (const auto product = product_of(call, sizes)) {
        shapes.inner = std::max(shapes.inner, product->k);
        if (is_behind_attention) shapes.hidden = product->n;
        shapes.products.push_back({*product, std::exchange(is_behind_attention, false)});
      }
    } else if (const auto kernel = eager_kernel(call, sizes, sizes.element_bytes, element_bytes)) {
      ++shapes.eager[*kernel];
    }
  }
  if (shapes.experts.size() != weights.size()) return unknown_experts();
  if (shapes.layers == 0 || shapes.hidden == 0) {
    return Error{ErrorCode::unavailable,
                 "decode steps of this model are not predicted yet: no fused attention operator",
                 {},
                 {}};
  }
  return shapes;
}

double elements(int64_t rows, int64_t width) {
  return static_cast<double>(rows) * static_cast<double>(width);
}

// Around the experts: the router's softmax, the activation between the two products, and the sum of
// what the chosen experts made.
void add_routing(const Shapes& shapes, const Sizes& sizes, std::vector<CountedCall>& calls) {
  const double e = sizes.element_bytes;
  for (size_t i = 0; i + 1 < shapes.experts.size(); i += 2) {
    const ExpertProduct& down = shapes.experts[i + 1];
    const int64_t rows = sizes.batch * down.top_k;
    calls.push_back({rows_call(OperatorClass::softmax, {sizes.batch, down.experts},
                               2 * e * elements(sizes.batch, down.experts))});
    calls.push_back({rows_call(OperatorClass::gated_activation, {rows, down.k},
                               3 * e * elements(rows, down.k))});
    calls.push_back({rows_call(OperatorClass::elementwise, {rows, down.n},
                               e * (elements(rows, down.n) + elements(sizes.batch, down.n)))});
  }
}

// What is left in a serving engine: two norms, rotary embedding, the cache's new entries and an
// activation a layer; the embedding, the last norm.
std::vector<CountedCall> other_calls(const Shapes& shapes, const Sizes& sizes) {
  const auto row_call = [&](OperatorClass kind, int64_t width, double passes) {
    const double bytes = passes * elements(sizes.batch, width) * sizes.element_bytes;
    return rows_call(kind, {sizes.batch, width}, bytes);
  };
  const int64_t query_width = sizes.shared(shapes.heads) * sizes.head_dim;
  const auto kv_width = static_cast<int64_t>(sizes.cache_elements());
  std::vector<CountedCall> calls;
  calls.push_back({row_call(OperatorClass::rms_norm, shapes.hidden, 2), 2 * shapes.layers + 1});
  calls.push_back({row_call(OperatorClass::rope, query_width, 4), shapes.layers});
  calls.push_back({row_call(OperatorClass::elementwise, kv_width, 2), shapes.layers});
  const auto expert_layers = static_cast<int64_t>(shapes.experts.size() / 2);
  if (shapes.layers > expert_layers) {
    calls.push_back({row_call(OperatorClass::gated_activation, sizes.shared(shapes.inner), 3),
                     shapes.layers - expert_layers});
  }
  add_routing(shapes, sizes, calls);
  calls.push_back({row_call(OperatorClass::embedding, shapes.hidden, 2)});
  return calls;
}

std::vector<CountedCall> eager_calls(const Shapes& shapes, const Sizes& sizes) {
  std::vector<CountedCall> calls;
  for (const auto& [kernel, times] : shapes.eager) {
    calls.push_back({rows_call(kernel.kind, {sizes.batch, kernel.width}, kernel.bytes), times});
  }
  return calls;
}

// A sequence's queries read the cache, by as many heads as the device has.
Call attention_of(const Shapes& shapes, const Sizes& sizes) {
  const int64_t heads = sizes.shared(shapes.heads);
  const int64_t kv_heads =
      std::min(heads, sizes.shared(sizes.variant.kv_heads.value_or(sizes.kv_heads)));
  const AttentionShape one{.batch = sizes.batch,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .head_dim = sizes.head_dim,
                           .context = sizes.kept_context()};
  Call call = attention_call(one, sizes.rate, sizes.element_bytes);
  const double tokens = static_cast<double>(sizes.batch) * static_cast<double>(one.context);
  call.bytes += tokens * (sizes.cache_elements() * sizes.cache_element_bytes() -
                          2 * static_cast<double>(kv_heads * sizes.head_dim) * sizes.element_bytes);
  if (sizes.variant.latent) {
    // Each head multiplies with the latent, and sums latents up.
    call.flops = 4 * tokens * static_cast<double>(heads) * sizes.cache_elements();
  }
  return call;
}

// On one of the tensor parallel devices: a product of what all of them have is divided by its
// outputs, one of what each has a part of (heads, the inner width) by its inputs.
GemmShape shared_product(const Product& product, const Shapes& shapes, const Sizes& sizes) {
  GemmShape shape = product.shape;
  const bool is_of_all = !product.is_behind_attention && shape.k == shapes.hidden;
  int64_t& divided = is_of_all ? shape.n : shape.k;
  divided = sizes.shared(divided);
  return shape;
}

// Of what goes into a product with quantized activations.
double input_element_bytes(device::Rate rate) { return rate == device::Rate::fp4 ? 0.5 : 1; }

Call product_call(const GemmShape& product, bool is_last, const Sizes& sizes) {
  Call call = gemm_call(product, sizes.rate, sizes.element_bytes);
  const DecodeVariant& variant = sizes.variant;
  if (!variant.weight_element_bytes || is_last) return call;
  call.bytes += (*variant.weight_element_bytes - sizes.element_bytes) *
                static_cast<double>(product.n) * static_cast<double>(product.k);
  call.is_stand_in = !variant.product_rate;  // no table has a kernel that unpacks weights
  if (!variant.product_rate) return call;
  call.rate = *variant.product_rate;
  call.bytes +=
      (input_element_bytes(call.rate) - sizes.element_bytes) * elements(product.m, product.k);
  return call;
}

// Before a product with quantized activations, as engines have it: what comes out is scaled within
// the product.
void add_product(const GemmShape& product, bool is_last, const Sizes& sizes, DecodeWork& work) {
  work.matmul.push_back({product_call(product, is_last, sizes)});
  const DecodeVariant& variant = sizes.variant;
  if (!variant.weight_element_bytes || !variant.product_rate || is_last) return;
  const double bytes = sizes.element_bytes + input_element_bytes(*variant.product_rate);
  Call before = rows_call(OperatorClass::elementwise, {product.m, product.k},
                          bytes * elements(product.m, product.k));
  before.is_stand_in = true;
  work.quantize.push_back({before});
}

// Behind attention and behind the second half of each layer.
std::vector<CountedCall> reductions(const Shapes& shapes, const Sizes& sizes) {
  if (sizes.variant.tensor_parallel < 2) return {};
  const double message = elements(sizes.batch, shapes.hidden) * sizes.element_bytes;
  const CollectiveShape one{.group = sizes.variant.tensor_parallel,
                            .message = static_cast<int64_t>(message)};
  return {{all_reduce_call(OperatorClass::all_reduce_graph, one), 2 * shapes.layers}};
}

DecodeWork work_of(const Shapes& shapes, const Sizes& sizes, bool is_eager) {
  DecodeWork work;
  work.attention.push_back({attention_of(shapes, sizes), shapes.layers});
  for (size_t i = 0; i < shapes.products.size(); ++i) {
    const bool is_last = i + 1 == shapes.products.size();
    GemmShape product = shared_product(shapes.products[i], shapes, sizes);
    product.m = sizes.batch;
    add_product(product, is_last, sizes, work);
  }
  for (ExpertProduct product : shapes.experts) {
    product.n = sizes.shared(product.n);
    add_product(grouped_shape(product, sizes.batch), false, sizes, work);
  }
  work.other = is_eager ? eager_calls(shapes, sizes) : other_calls(shapes, sizes);
  work.collectives = reductions(shapes, sizes);
  work.operators = shapes.operators;
  work.vocabulary = shapes.products.back().shape.n;
  return work;
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

Result<model::Graph> decode_graph(const text::JsonView& config, const DecodeOptions& options,
                                  int64_t batch) {
  HEADROOM_ASSIGN(const model::Family* family, model::find_family(config));
  if (family->task != model::Task::causal_lm) {
    return Error{ErrorCode::usage,
                 "a model that writes no text token by token has no decode step",
                 {},
                 "ask about a causal language model"};
  }
  model::BuildOptions build;
  build.batch = batch;
  build.sequence = 1;
  build.past = options.context - 1;
  build.use_cache = true;
  build.training = false;
  build.labels = false;
  return model::build_graph(config, build);
}

Result<Sizes> sizes_of(const model::Graph& graph, const DecodeOptions& options, int64_t batch) {
  for (const model::GraphInput& input : graph.inputs) {
    if (!input.name.starts_with("past_key_values.")) continue;
    if (!input.name.ends_with(".key") && !input.name.ends_with(".value")) {
      return Error{ErrorCode::unavailable,
                   "decode steps with linear attention are not predicted yet",
                   {},
                   "its kernels have no law here"};
    }
  }
  for (const model::GraphInput& input : graph.inputs) {
    if (!input.name.starts_with("past_key_values.") || input.shape.size() != 4) continue;
    const bool half = options.weights == op::DType::f16;
    const bool whole = options.weights == op::DType::f32;
    return Sizes{.batch = batch,
                 .context = options.context,
                 .kv_heads = std::max<int64_t>(1, input.shape[1]),
                 .head_dim = std::max<int64_t>(1, input.shape[3]),
                 .element_bytes = static_cast<double>(op::element_size(options.weights)),
                 .rate = half    ? device::Rate::fp16
                         : whole ? device::Rate::fp32
                                 : device::Rate::bf16,
                 .variant = options.variant};
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

// Over which the weights lie.
int64_t devices_of(const DecodeOptions& options) {
  return options.variant.tensor_parallel * options.variant.pipeline_parallel;
}

// What quantized weights are smaller by, on all devices together.
int64_t saved_weight_bytes(const Shapes& shapes, const Sizes& sizes) {
  double count = 0;
  for (size_t i = 0; i + 1 < shapes.products.size(); ++i) {
    count += elements(shapes.products[i].shape.n, shapes.products[i].shape.k);
  }
  for (const ExpertProduct& product : shapes.experts) {
    count += static_cast<double>(product.experts) * elements(product.n, product.k);
  }
  return std::llround(count * (sizes.element_bytes - *sizes.variant.weight_element_bytes));
}

// Of all sequences of the graph, on one device.
Bytes cache_bytes(const model::Graph& graph, const DecodeOptions& options, const Sizes& sizes) {
  const auto whole = static_cast<double>(step::kv_cache_bytes(graph, options.weights));
  const double elements = sizes.cache_elements() / sizes.model_cache_elements();
  const double of_element = sizes.cache_element_bytes() / sizes.element_bytes;
  const double kept =
      static_cast<double>(sizes.kept_context()) / static_cast<double>(sizes.context);
  return Bytes(std::llround(whole * elements * of_element * kept /
                            static_cast<double>(options.variant.pipeline_parallel)));
}

// Sequences whose cache fits beside the weights.
int64_t largest_batch_of(const device::Device& device, Bytes weights, int64_t kv_of_one) {
  if (!device.usable_memory.known() || kv_of_one <= 0) return 0;
  const double budget = kMemoryShare * static_cast<double>(device.usable_memory.value.count) -
                        static_cast<double>(weights.count);
  if (budget < static_cast<double>(kv_of_one)) return 0;
  return std::min(kMostBatch, static_cast<int64_t>(budget / static_cast<double>(kv_of_one)));
}

// What the counting below would get wrong, at any length.
Result<void> refuse_latent(const text::JsonView& config) {
  HEADROOM_ASSIGN(const auto latent, config.optional_int("kv_lora_rank", 0, int64_t{1} << 53));
  if (latent && *latent > 0) {
    return Error{ErrorCode::unavailable,
                 "decode steps with latent attention (MLA) are not predicted yet",
                 {},
                 "serving engines cache the latent, whose kernels have no law here"};
  }
  return {};
}

// And at the length that is asked for: to be said last, since its hint is to lead somewhere.
Result<void> refuse_beyond_window(const text::JsonView& config, const DecodeOptions& options) {
  HEADROOM_ASSIGN(const auto window, config.optional_int("sliding_window", 0, int64_t{1} << 53));
  HEADROOM_ASSIGN(const auto is_used, config.optional_bool("use_sliding_window"));
  if (window && is_used.value_or(true) && *window < options.context) {
    return Error{ErrorCode::unavailable,
                 "contexts beyond the sliding window of " + std::to_string(*window) +
                     " tokens are not predicted yet",
                 {},
                 "a context of " + std::to_string(*window) + " tokens or less"};
  }
  return {};
}

// The device's own, else the first that runs on any.
const Engine* engine_on(const TimingModel& model, std::string_view device) {
  const auto of = [&](std::string_view name) {
    return std::ranges::find(model.engines(), name, &Engine::device);
  };
  if (const auto own = of(device); own != model.engines().end()) return &*own;
  if (const auto any = of(""); any != model.engines().end()) return &*any;
  return nullptr;
}

}  // namespace

struct DecodeShapes {
  Shapes shapes;
  Sizes sizes;  // of one sequence
};

Result<DecodePredictor> DecodePredictor::make(const text::JsonView& config,
                                              const device::Device& device,
                                              const DecodeOptions& options,
                                              const TimingModel& model) {
  HEADROOM_CHECK(options.context >= 2 && options.context <= kMostContext, "a context of tokens");
  HEADROOM_CHECK(options.variant.tensor_parallel >= 1 && options.variant.pipeline_parallel >= 1 &&
                     options.variant.tensor_parallel <= kMostParallel &&
                     options.variant.pipeline_parallel <= kMostParallel,
                 "devices of a server");
  if (engine_on(model, device.name) == nullptr) {
    return Error{ErrorCode::unavailable, "no serving engine is known", {}, {}};
  }
  HEADROOM_ASSIGN(const model::Graph graph, decode_graph(config, options, 1));
  HEADROOM_TRY(refuse_latent(config));
  HEADROOM_ASSIGN(Sizes sizes, sizes_of(graph, options, 1));
  HEADROOM_TRY(refuse_beyond_window(config, options));
  DecodePredictor made(config, device, options, model);
  made.engine_ = engine_on(model, device.name);
  auto& product_rate = made.options_.variant.product_rate;
  if (product_rate && !device.rate(*product_rate).known()) product_rate.reset();
  made.options_.is_eager = made.engine_->is_eager;
  sizes.variant = made.options_.variant;
  made.rate_ = sizes.rate;
  HEADROOM_ASSIGN(const Shapes shapes, shapes_of(graph, sizes));
  made.shapes_ = std::make_shared<const DecodeShapes>(DecodeShapes{shapes, sizes});
  made.weights_ = Bytes(weight_bytes(graph, options.weights).count / devices_of(options));
  if (options.variant.weight_element_bytes) {
    made.weights_ -= Bytes(saved_weight_bytes(shapes, sizes) / devices_of(options));
  }
  made.kv_of_one_ = cache_bytes(graph, options, sizes);
  made.largest_batch_ = largest_batch_of(device, made.weights_, made.kv_of_one_.count);
  return made;
}

Result<DecodeWork> decode_work(const text::JsonView& config, const DecodeOptions& options,
                               int64_t batch) {
  HEADROOM_CHECK(batch >= 1 && batch <= kMostBatch, "a batch of sequences");
  HEADROOM_CHECK(options.context >= 2 && options.context <= kMostContext, "a context of tokens");
  HEADROOM_ASSIGN(const model::Graph graph, decode_graph(config, options, batch));
  HEADROOM_TRY(refuse_latent(config));
  HEADROOM_ASSIGN(const Sizes sizes, sizes_of(graph, options, batch));
  HEADROOM_TRY(refuse_beyond_window(config, options));
  HEADROOM_ASSIGN(const Shapes shapes, shapes_of(graph, sizes));
  DecodeWork work = work_of(shapes, sizes, options.is_eager);
  work.kv_cache = cache_bytes(graph, options, sizes);
  return work;
}

// Products and attention are alike for all batches but for their rows; what eager mode does beside
// them is counted anew.
Result<DecodeWork> DecodePredictor::work(int64_t batch) const {
  if (options_.is_eager) return decode_work(config_, options_, batch);
  HEADROOM_CHECK(batch >= 1 && batch <= kMostBatch, "a batch of sequences");
  Sizes sizes = shapes_->sizes;
  sizes.batch = batch;
  DecodeWork work = work_of(shapes_->shapes, sizes, false);
  work.kv_cache = kv_of_one_ * batch;
  return work;
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
  const double host = engine_->host_base_seconds + engine_->host_seconds_per_sequence * rows +
                      engine_->host_seconds_per_operator * static_cast<double>(work.operators);
  result.host = {host / spread, host, host * spread};
  if (const auto& share = options_.variant.host_share) {
    const double kernels = result.parts_seconds() - result.host.seconds;
    const double given = kernels * *share / (1 - *share);
    result.host = {given, given, given};
  }
  result.step = total({&result.attention.time, &result.matmul.time, &result.other.time,
                       &result.quantize.time, &result.collectives.time, &result.host});
  result.roofline_seconds = attention.roofline_seconds() + matmul.roofline_seconds();
  return result;
}

Result<TimeInterval> DecodePredictor::prefill(int64_t tokens) const {
  HEADROOM_CHECK(tokens >= 1 && tokens <= kMostContext, "a prompt of tokens");
  const Shapes& shapes = shapes_->shapes;
  const Sizes& sizes = shapes_->sizes;
  DecodeWork work;
  for (size_t i = 0; i < shapes.products.size(); ++i) {
    GemmShape product = shared_product(shapes.products[i], shapes, sizes);
    const bool is_head = i + 1 == shapes.products.size();  // for the last token alone
    product.m = is_head ? 1 : tokens;
    add_product(product, is_head, sizes, work);
  }
  for (ExpertProduct product : shapes.experts) {
    product.n = sizes.shared(product.n);
    add_product(grouped_shape(product, tokens), false, sizes, work);
  }
  Sum sum(*model_, *device_);
  HEADROOM_TRY(sum.add(work.matmul));
  HEADROOM_TRY(sum.add(work.quantize));
  const int64_t heads = sizes.shared(shapes.heads);
  const AttentionShape one{
      .heads = heads,
      .kv_heads = std::min(heads, sizes.shared(sizes.variant.kv_heads.value_or(sizes.kv_heads))),
      .head_dim = sizes.head_dim,
      .queries = tokens,
      .context = tokens};
  HEADROOM_TRY(sum.add(attention_call(one, sizes.rate, sizes.element_bytes), shapes.layers));
  Sizes many = sizes;
  many.batch = tokens;
  HEADROOM_TRY(sum.add(reductions(shapes, many)));
  return sum.kernels().time;
}

int64_t DecodePredictor::heads() const { return shapes_->shapes.heads; }
int64_t DecodePredictor::kv_heads() const { return shapes_->sizes.kv_heads; }
int64_t DecodePredictor::head_dim() const { return shapes_->sizes.head_dim; }

double DecodePredictor::peak_bytes_per_second() const { return device_->bandwidth.value.value; }

double DecodePredictor::peak_flops_per_second() const { return device_->rate(rate_).value.value; }

}  // namespace headroom::timing
