#include "timing/decode_shapes.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "model/hidden_size.h"
#include "model/language_part.h"
#include "step/inference.h"

namespace headroom::timing {
namespace {

constexpr std::string_view kCache = "past_key_values.";
constexpr int64_t kMostSize = int64_t{1} << 40;

bool is_cache(const model::GraphInput& input) { return input.name.starts_with(kCache); }

// Keys and values grow with the context; a state of linear attention does not.
bool is_state(const model::GraphInput& input) {
  return is_cache(input) && !input.name.ends_with(".key") && !input.name.ends_with(".value");
}

Result<std::optional<int64_t>> size_of(const text::JsonView& config, const char* key) {
  return config.optional_int(key, 0, kMostSize);
}

// Nothing where the model has no latent attention.
Result<std::optional<LatentSizes>> latent_of(const text::JsonView& language) {
  HEADROOM_ASSIGN(const auto rank, size_of(language, "kv_lora_rank"));
  if (!rank || *rank == 0) return std::optional<LatentSizes>();
  LatentSizes latent;
  latent.rank = *rank;
  for (const auto& [key, field] : {std::pair{"num_attention_heads", &LatentSizes::heads},
                                   std::pair{"qk_rope_head_dim", &LatentSizes::rope},
                                   std::pair{"qk_nope_head_dim", &LatentSizes::nope},
                                   std::pair{"v_head_dim", &LatentSizes::value}}) {
    HEADROOM_ASSIGN(const auto value, size_of(language, key));
    if (value) latent.*field = std::max<int64_t>(1, *value);
  }
  return std::optional(latent);
}

// Chosen keys are another kernel than those that see all of them.
Result<void> refuse_indexer(const model::Graph& graph) {
  const bool has_indexer = std::ranges::any_of(graph.inputs, [](const model::GraphInput& input) {
    return is_cache(input) && input.name.ends_with(".index_key");
  });
  if (!has_indexer) return {};
  return Error{ErrorCode::unavailable,
               "decode steps of attention to chosen keys (a sparse indexer) are not predicted yet",
               {},
               "its kernels have no law here"};
}

// A product with a weight: m is the batch, the rest follows from what it writes and computes.
// Nothing for products without one (the angles of rotary embedding, which an engine keeps).
// Nor for the short convolutions before linear attention, which are of its state's kernels.
std::optional<GemmShape> product_of(const step::OperatorCall& call, const DecodeSizes& sizes) {
  if (call.kind == op::OpKind::bmm || call.kind == op::OpKind::baddbmm) return std::nullopt;
  if (call.kind == op::OpKind::convolution) return std::nullopt;
  const double rows = static_cast<double>(sizes.batch);
  const double n = static_cast<double>(call.bytes_written) / (rows * sizes.element_bytes);
  const double k = n > 0 ? call.flops / (2 * rows * n) : 0;
  if (!(n >= 1) || !(k >= 1)) return std::nullopt;
  return GemmShape{.m = sizes.batch,
                   .n = static_cast<int64_t>(std::llround(n)),
                   .k = static_cast<int64_t>(std::llround(k))};
}

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
                                        const model::Parameter& weight, const DecodeSizes& sizes) {
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
std::optional<EagerKernel> eager_kernel(const step::OperatorCall& call, const DecodeSizes& sizes,
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

// By layer: all of its states are read and written by one kernel.
void add_states(const model::Graph& graph, int64_t batch, double element_bytes,
                DecodeOperators& operators) {
  std::map<std::string, StateKernel> of_layer;
  for (const model::GraphInput& input : graph.inputs) {
    if (!is_state(input)) continue;
    const std::string layer = input.name.substr(0, input.name.rfind('.'));
    const int64_t elements = op::product(input.shape) / batch;
    const double size =
        input.dtype ? static_cast<double>(op::element_size(*input.dtype)) : element_bytes;
    StateKernel& kernel = of_layer.try_emplace(layer, StateKernel{0, 0}).first->second;
    kernel.width += elements;
    kernel.bytes += 2 * size * static_cast<double>(elements);
  }
  for (const auto& [layer, kernel] : of_layer) {
    if (kernel.bytes > 0) ++operators.states[kernel];
  }
  operators.linear_layers = static_cast<int64_t>(of_layer.size());
}

}  // namespace

// Traced in bfloat16 whatever the type, since shapes do not depend on it: in float32 PyTorch's CUDA
// kernels refuse grouped heads, which engines' and the CPU's do not.
Result<DecodeOperators> operators_of(const model::Graph& graph, DecodeSizes sizes) {
  step::InferenceOptions inference;
  inference.weights = op::DType::bf16;
  const double element_bytes = sizes.element_bytes;
  sizes.element_bytes = static_cast<double>(op::element_size(inference.weights));
  HEADROOM_ASSIGN(const step::StepTrace trace, step::trace_inference(graph, inference));
  const std::vector<const model::Parameter*> weights = expert_weights(graph);
  DecodeOperators shapes;
  bool is_behind_attention = false;
  for (const step::OperatorCall& call : trace.calls) {
    if (call.phase != step::Phase::forward) continue;
    ++shapes.operators;
    const op::OpGroup group = op::group_of(call.kind);
    if (group == op::OpGroup::attention) {
      const double width = static_cast<double>(call.bytes_written) /
                           (static_cast<double>(sizes.batch) * sizes.element_bytes);
      shapes.heads = sizes.latent ? sizes.latent->heads
                                  : std::max<int64_t>(1, std::llround(width) / sizes.head_dim);
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
  add_states(graph, sizes.batch, element_bytes, shapes);
  if (sizes.hidden > 0) shapes.hidden = sizes.hidden;
  if (shapes.layers == 0 || shapes.hidden == 0) {
    return Error{ErrorCode::unavailable,
                 "decode steps of this model are not predicted yet: no fused attention operator",
                 {},
                 {}};
  }
  return shapes;
}

Result<DecodeSizes> sizes_of(const model::Graph& graph, const text::JsonView& config,
                             const DecodeOptions& options, int64_t batch) {
  HEADROOM_TRY(refuse_indexer(graph));
  const auto keys = std::ranges::find_if(graph.inputs, [](const model::GraphInput& input) {
    return is_cache(input) && !is_state(input) && input.shape.size() == 4;
  });
  if (keys == graph.inputs.end()) {
    return Error{
        ErrorCode::unavailable,
        "decode steps of this family are not predicted yet: its graph has no key-value cache",
        {},
        {}};
  }
  const bool half = options.weights == op::DType::f16;
  const bool whole = options.weights == op::DType::f32;
  DecodeSizes sizes{.batch = batch,
                    .context = options.context,
                    .kv_heads = std::max<int64_t>(1, keys->shape[1]),
                    .head_dim = std::max<int64_t>(1, keys->shape[3]),
                    .element_bytes = static_cast<double>(op::element_size(options.weights)),
                    .rate = half    ? device::Rate::fp16
                            : whole ? device::Rate::fp32
                                    : device::Rate::bf16,
                    .variant = options.variant};
  HEADROOM_ASSIGN(const auto hidden, model::hidden_size_of(config));
  sizes.hidden = hidden.value_or(0);
  HEADROOM_ASSIGN(const text::JsonView language, model::language_part(config));
  HEADROOM_ASSIGN(sizes.latent, latent_of(language));
  if (sizes.latent) {
    sizes.kv_heads = 1;
    sizes.head_dim = sizes.latent->cached();
  }
  return sizes;
}

}  // namespace headroom::timing
