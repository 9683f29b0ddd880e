// What a decode step is made of, counted on the step model's graph: sizes, products, experts,
// states of linear attention, and what eager mode does beside them.
//
// An engine's absorbed form of latent attention (arXiv 2405.04434, 2.1.2) multiplies queries by the
// keys' half of kv_b_proj and what attention gives by the values' half: the same FLOPs, and the
// same weights, as that projection of one token, which is how it is counted here. For
// decode_step.cpp and its parts alone. Pure; thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "model/graph.h"
#include "timing/call.h"
#include "timing/decode_step.h"

namespace headroom::timing {

// Latent attention (MLA): one latent and one rotated key a token and layer, for all heads.
struct LatentSizes {
  int64_t heads = 1;
  int64_t rank = 1;   // of the latent
  int64_t rope = 0;   // of the rotated key
  int64_t nope = 1;   // of a key head beside it
  int64_t value = 1;  // of a value head
  [[nodiscard]] int64_t cached() const { return rank + rope; }
};

// Sizes of the model as its decode graph has them.
struct DecodeSizes {
  int64_t batch = 1;
  int64_t context = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
  int64_t hidden = 0;                                // of the model; 0: not said
  std::optional<LatentSizes> latent = std::nullopt;  // of the model itself
  double element_bytes = 2;
  device::Rate rate = device::Rate::bf16;
  DecodeVariant variant;

  [[nodiscard]] double cache_element_bytes() const {
    return variant.cache_element_bytes.value_or(element_bytes);
  }
  // Elements that one token has in the cache of a layer, as the model has them.
  [[nodiscard]] double model_cache_elements() const {
    if (latent) return static_cast<double>(latent->cached());
    return 2 * static_cast<double>(kv_heads) * static_cast<double>(head_dim);
  }
  // And as they are, on one device: heads that are fewer than devices are there several times.
  [[nodiscard]] double cache_elements() const {
    if (variant.latent) return static_cast<double>(*variant.latent);
    if (latent) return static_cast<double>(latent->cached());
    const int64_t heads = variant.kv_heads.value_or(kv_heads);
    return 2 * static_cast<double>(shared(heads)) * static_cast<double>(head_dim);
  }
  // Of so many, what one of the tensor parallel devices has.
  [[nodiscard]] int64_t shared(int64_t count) const {
    return std::max<int64_t>(1, (count + variant.tensor_parallel - 1) / variant.tensor_parallel);
  }
  // Of attention, beside as many heads as the device has of it.
  [[nodiscard]] int64_t kv_heads_here(int64_t heads_here) const {
    return std::min(heads_here, shared(variant.kv_heads.value_or(kv_heads)));
  }
  [[nodiscard]] int64_t kept_context() const {
    return std::min(context, variant.window.value_or(context));
  }
};

[[nodiscard]] constexpr double elements(int64_t rows, int64_t width) {
  return static_cast<double>(rows) * static_cast<double>(width);
}

// A product with a weight. Of tensor parallel devices each has a part of its outputs, or else of
// what it multiplies: then what they give are parts of a sum.
struct Product {
  GemmShape shape;
  bool is_behind_attention = false;
};

// A product with the weights of all experts of a layer: each token is multiplied by `top_k` of
// them.
struct ExpertProduct {
  int64_t experts = 1;
  int64_t top_k = 1;
  int64_t n = 1;  // of one expert
  int64_t k = 1;
};

// A kernel of eager mode that is neither product nor attention: so many bytes in rows of the batch.
struct EagerKernel {
  OperatorClass kind{};
  int64_t width = 1;  // elements a row, of what it reads or writes, whichever is more
  double bytes = 0;
  auto operator<=>(const EagerKernel&) const = default;
};

// A layer's state of fixed size, which a step reads and writes.
struct StateKernel {
  int64_t width = 1;  // elements of a sequence
  double bytes = 0;   // of a sequence
  auto operator<=>(const StateKernel&) const = default;
};

struct DecodeOperators {
  std::vector<Product> products;
  std::vector<ExpertProduct> experts;     // two a layer: gate and up in one, and down
  int64_t layers = 0;                     // with attention
  int64_t linear_layers = 0;              // with linear attention
  std::map<StateKernel, int64_t> states;  // and how often
  int64_t heads = 0;
  int64_t hidden = 0;  // what a layer passes on: as wide as the heads together, or not
  int64_t inner = 0;   // the widest input of a product: of the layer's second half
  std::map<EagerKernel, int64_t> eager;  // and how often
  int64_t operators = 0;
};

// What DecodePredictor keeps of a model: its operators, and the sizes of one sequence.
struct DecodeShapes {
  DecodeOperators shapes;
  DecodeSizes sizes;
};

// Of a graph as decode_graph() makes it. `config`: for what a graph does not say.
Result<DecodeSizes> sizes_of(const model::Graph& graph, const text::JsonView& config,
                             const DecodeOptions& options, int64_t batch);

// The operators of decode_graph()'s graph, or of graph_without_past()'s where attention is latent.
Result<DecodeOperators> operators_of(const model::Graph& graph, DecodeSizes sizes);

}  // namespace headroom::timing
