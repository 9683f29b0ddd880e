#include "timing/decode_calls.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headroom::timing {
namespace {

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

// Around the experts: the router's softmax, the activation between the two products, and the sum of
// what the chosen experts made.
void add_routing(const DecodeOperators& shapes, const DecodeSizes& sizes,
                 std::vector<CountedCall>& calls) {
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

// What is left in a serving engine: the states of linear attention, each read and written by one
// kernel beside the memory of which its arithmetic is nothing; two norms, rotary embedding, the
// cache's new entries and an activation a layer; the embedding, the last norm.
std::vector<CountedCall> other_calls(const DecodeOperators& shapes, const DecodeSizes& sizes) {
  const auto row_call = [&](OperatorClass kind, int64_t width, double passes) {
    const double bytes = passes * elements(sizes.batch, width) * sizes.element_bytes;
    return rows_call(kind, {sizes.batch, width}, bytes);
  };
  const int64_t hidden = shapes.hidden;
  const int64_t turned =
      sizes.latent ? sizes.latent->rope * shapes.heads : shapes.heads * sizes.head_dim;
  const auto kv_width = static_cast<int64_t>(sizes.cache_elements());
  const int64_t layers = shapes.layers + shapes.linear_layers;
  std::vector<CountedCall> calls;
  calls.push_back({row_call(OperatorClass::rms_norm, hidden, 2), 2 * layers + 1});
  calls.push_back({row_call(OperatorClass::rope, sizes.shared(turned), 4), shapes.layers});
  calls.push_back({row_call(OperatorClass::elementwise, kv_width, 2), shapes.layers});
  const auto expert_layers = static_cast<int64_t>(shapes.experts.size() / 2);
  if (layers > expert_layers) {
    calls.push_back({row_call(OperatorClass::gated_activation, sizes.shared(shapes.inner), 3),
                     layers - expert_layers});
  }
  for (const auto& [state, times] : shapes.states) {
    const int64_t width = sizes.shared(state.width);
    const double bytes = static_cast<double>(sizes.batch) * state.bytes *
                         static_cast<double>(width) / static_cast<double>(state.width);
    calls.push_back(
        {rows_call(OperatorClass::elementwise, {sizes.batch, width}, bytes), times, true});
  }
  add_routing(shapes, sizes, calls);
  calls.push_back({row_call(OperatorClass::embedding, hidden, 2)});
  return calls;
}

std::vector<CountedCall> eager_calls(const DecodeOperators& shapes, const DecodeSizes& sizes) {
  std::vector<CountedCall> calls;
  for (const auto& [kernel, times] : shapes.eager) {
    calls.push_back({rows_call(kernel.kind, {sizes.batch, kernel.width}, kernel.bytes), times});
  }
  return calls;
}

// A sequence's queries read the cache, by as many heads as the device has.
Call attention_of(const DecodeOperators& shapes, const DecodeSizes& sizes) {
  const int64_t heads = sizes.shared(shapes.heads);
  const int64_t kv_heads = sizes.kv_heads_here(heads);
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
  } else if (sizes.latent) {
    // Scores are of the latent and the rotated key, what is summed up is the latent alone.
    const LatentSizes& latent = *sizes.latent;
    call.flops = 2 * tokens * static_cast<double>(heads * (latent.cached() + latent.rank));
  }
  return call;
}

// On one of the tensor parallel devices: a product of what all of them have is divided by its
// outputs, one of what each has a part of (heads, the inner width) by its inputs.
GemmShape shared_product(const Product& product, const DecodeOperators& shapes,
                         const DecodeSizes& sizes) {
  GemmShape shape = product.shape;
  const bool is_of_all = !product.is_behind_attention && shape.k == shapes.hidden;
  int64_t& divided = is_of_all ? shape.n : shape.k;
  divided = sizes.shared(divided);
  return shape;
}

// Of what goes into a product with quantized activations.
double input_element_bytes(device::Rate rate) { return rate == device::Rate::fp4 ? 0.5 : 1; }

Call product_call(const GemmShape& product, bool is_last, const DecodeSizes& sizes) {
  Call call = gemm_call(product, sizes.rate, sizes.element_bytes);
  const DecodeVariant& variant = sizes.variant;
  if (!variant.weight_element_bytes || is_last) return call;
  if (variant.quantizes_within) return linear_int8_call(product, sizes.element_bytes);
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
void add_product(const GemmShape& product, bool is_last, const DecodeSizes& sizes,
                 DecodeWork& work) {
  work.matmul.push_back({product_call(product, is_last, sizes)});
  const DecodeVariant& variant = sizes.variant;
  if (!variant.weight_element_bytes || !variant.product_rate || is_last) return;
  if (variant.quantizes_within) return;
  const double bytes = sizes.element_bytes + input_element_bytes(*variant.product_rate);
  Call before = rows_call(OperatorClass::elementwise, {product.m, product.k},
                          bytes * elements(product.m, product.k));
  before.is_stand_in = true;
  work.quantize.push_back({before});
}

// All products, of so many rows; the last one, of the head, of `head_rows`.
void add_products(const DecodeOperators& shapes, const DecodeSizes& sizes, int64_t rows,
                  int64_t head_rows, DecodeWork& work) {
  for (size_t i = 0; i < shapes.products.size(); ++i) {
    const bool is_head = i + 1 == shapes.products.size();
    GemmShape product = shared_product(shapes.products[i], shapes, sizes);
    product.m = is_head ? head_rows : rows;
    add_product(product, is_head, sizes, work);
  }
  for (ExpertProduct product : shapes.experts) {
    product.n = sizes.shared(product.n);
    add_product(grouped_shape(product, rows), false, sizes, work);
  }
}

// Behind attention and behind the second half of each layer.
std::vector<CountedCall> reductions(const DecodeOperators& shapes, const DecodeSizes& sizes) {
  if (sizes.variant.tensor_parallel < 2) return {};
  const double message = elements(sizes.batch, shapes.hidden) * sizes.element_bytes;
  const CollectiveShape one{.group = sizes.variant.tensor_parallel,
                            .message = static_cast<int64_t>(message)};
  return {{all_reduce_call(OperatorClass::all_reduce_graph, one),
           2 * (shapes.layers + shapes.linear_layers)}};
}

}  // namespace

DecodeWork work_of(const DecodeOperators& shapes, const DecodeSizes& sizes, bool is_eager) {
  DecodeWork work;
  work.attention.push_back({attention_of(shapes, sizes), shapes.layers, sizes.latent.has_value()});
  add_products(shapes, sizes, sizes.batch, sizes.batch, work);
  work.other = is_eager ? eager_calls(shapes, sizes) : other_calls(shapes, sizes);
  work.collectives = reductions(shapes, sizes);
  work.operators = shapes.operators;
  work.vocabulary = shapes.products.back().shape.n;
  return work;
}

std::vector<CountedCall> row_calls(const DecodeOperators& shapes, const DecodeSizes& sizes,
                                   int64_t rows, bool is_eager) {
  DecodeSizes many = sizes;
  many.batch = rows;
  DecodeWork work;
  add_products(shapes, many, rows, 1, work);  // logits of the last token alone
  std::vector<CountedCall> calls = std::move(work.matmul);
  const auto add = [&](std::vector<CountedCall> more) {
    calls.insert(calls.end(), more.begin(), more.end());
  };
  add(std::move(work.quantize));
  add(is_eager ? eager_calls(shapes, many) : other_calls(shapes, many));
  add(reductions(shapes, many));
  return calls;
}

CountedCall prompt_attention_call(const DecodeOperators& shapes, const DecodeSizes& sizes,
                                  int64_t tokens) {
  const int64_t heads = sizes.shared(shapes.heads);
  AttentionShape one{.heads = heads,
                     .kv_heads = sizes.kv_heads_here(heads),
                     .head_dim = sizes.head_dim,
                     .queries = tokens,
                     .context = tokens};
  if (sizes.latent) {
    // Keys and values as the heads see them, whose sizes differ.
    one.kv_heads = heads;
    one.head_dim = (sizes.latent->nope + sizes.latent->rope + sizes.latent->value + 1) / 2;
  }
  return {attention_call(one, sizes.rate, sizes.element_bytes), shapes.layers};
}

}  // namespace headroom::timing
