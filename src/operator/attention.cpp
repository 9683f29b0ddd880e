// Attention kernels: what each backend makes, keeps and needs for its backward.
//
// Sources: ATen/native/transformers/attention.cpp and cuda/attention*.cu (PyTorch 2.x), the
// flash-attn package's interface. Shapes: [batch, heads, sequence, head] for SDPA.
#include <algorithm>
#include <array>

#include "operator/functional.h"
#include "operator/scratch.h"

namespace headroom::op {

namespace {

double attention_flops(const Tensor& query, const Tensor& key, bool causal) {
  const double pairs = static_cast<double>(query.size(-2)) * static_cast<double>(key.size(-2));
  const double work = 4.0 * static_cast<double>(query.size(0) * query.size(1)) * pairs *
                      static_cast<double>(query.size(-1));
  return causal ? work / 2 : work;
}

// [b, h, s, head] stored as [b, s, h, head]: what the efficient kernels return. The flash kernels see
// [b, s, h, d] and make their results like that, so these keep the layout of their argument.
Tensor empty_sequence_first(Eager& e, const Tensor& like, int64_t head) {
  const Tensor dense = e.empty({like.size(0), like.size(2), like.size(1), head}, like.dtype());
  return e.alias(dense, {like.size(0), like.size(1), like.size(2), head},
                 {dense.strides()[0], dense.strides()[2], dense.strides()[1], dense.strides()[3]});
}

Tensor fused_result(Eager& e, const Tensor& like, int64_t head, bool is_flash) {
  return is_flash ? e.empty_like(like, like.dtype()) : empty_sequence_first(e, like, head);
}

Tensor grouped_heads(Eager& e, const Tensor& tensor, int64_t repeats);

// A boolean mask as numbers that are added to the scores (convert_boolean_attn_mask).
Tensor additive_mask(Eager& e, const Tensor& mask, DType dtype) {
  if (!mask || mask.dtype() != DType::boolean) return mask;
  const Tensor lowest = full(e, {}, dtype);
  const Tensor zero = full(e, {}, dtype);
  return where(e, mask, zero, lowest);
}

// The efficient kernel reads rows that begin at multiples of 8 elements: where a mask's do not, it
// is made again with longer rows (pad_bias); a view of the wanted sizes goes to the kernel.
Tensor aligned_mask(Eager& e, const Tensor& mask_in, const Tensor& query, const Tensor& key) {
  constexpr int64_t kAlignment = 8;
  if (!mask_in) return mask_in;
  Tensor mask = mask_in;
  bool aligned = mask.strides().back() == 1;
  for (size_t i = 0; i + 1 < mask.strides().size(); ++i) {
    aligned = aligned && mask.strides()[i] % kAlignment == 0;
  }
  if (!aligned) {
    const int64_t length = mask.size(-1);
    const std::array<int64_t, 2> padding{0, kAlignment - length % kAlignment};
    mask = slice(e, pad(e, mask, padding), -1, 0, length);
  }
  return expand(e, mask, {query.size(0), query.size(1), query.size(2), key.size(2)});
}

// What a fused backward holds while it runs.
using ScratchBlocks = std::array<Tensor, 4>;

ScratchBlocks flash_backward_blocks(Eager& e, const AttentionSizes& sizes, DType dtype) {
  const auto scratch = flash_backward_scratch(e.environment(), sizes, dtype);
  ScratchBlocks blocks;
  blocks[0] = e.scratch(scratch.row_sums_bytes);
  blocks[1] = e.scratch(scratch.query_gradient_bytes);
  blocks[2] = e.scratch(scratch.expanded_bytes);
  blocks[3] = e.scratch(scratch.expanded_bytes);
  return blocks;
}

ScratchBlocks efficient_backward_blocks(Eager& e, const AttentionSizes& sizes, DType dtype) {
  const auto scratch = efficient_backward_scratch(e.environment(), sizes, dtype);
  ScratchBlocks blocks;
  blocks[0] = e.scratch(scratch.products_bytes);
  blocks[1] = e.scratch(scratch.delta_bytes);
  blocks[0] = Tensor();  // only until delta is summed from it
  blocks[2] = e.scratch(scratch.workspace_bytes);
  return blocks;
}

struct Saved {
  enum Slot : size_t { query, key, value, mask, out, logsumexp, seed, offset };
};

// The fused backends: one kernel each way; they keep their inputs, their output and one float32
// number for each query row.
Tensor fused_attention(Eager& e, const char* name, const Tensor& query, const Tensor& key,
                       const Tensor& value, const Tensor& mask, bool causal,
                       int64_t logsumexp_rows, const Dims& seed_sizes, bool is_flash) {
  Tensor out = fused_result(e, query, value.size(-1), is_flash);
  Tensor logsumexp = e.empty({query.size(0), query.size(1), logsumexp_rows}, DType::f32);
  // The random state for dropout, kept whether there is dropout or not.
  Tensor seed = e.empty(seed_sizes, DType::i64);
  Tensor offset = e.empty({}, DType::i64);
  const double flops = attention_flops(query, key, causal);
  e.kernel(OpKind::sdpa, flops, query.bytes() + key.bytes() + value.bytes(), out.bytes());
  if (Node* node = e.history(name, {&query, &key, &value}, {&out})) {
    for (const Tensor& tensor : {query, key, value, mask, out, logsumexp, seed, offset}) {
      node->save(tensor);
    }
    node->apply = [flops, is_flash](Eager& eager, Node& n, Grads& g, Grads& result) {
      // All three, wanted or not.
      for (const size_t i : {Saved::query, Saved::key, Saved::value}) {
        const Tensor& input = n.saved[i];
        result[i] = fused_result(eager, input, input.size(-1), is_flash);
      }
      const Tensor& q = n.saved[Saved::query];
      const Tensor& k = n.saved[Saved::key];
      const AttentionSizes sizes{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
      const ScratchBlocks blocks = is_flash ? flash_backward_blocks(eager, sizes, q.dtype())
                                            : efficient_backward_blocks(eager, sizes, q.dtype());
      eager.kernel(OpKind::sdpa, 2.5 * flops, 3 * g[0].bytes(), 3 * g[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

// The composite: scaled query and key, product, mask, softmax, dropout, product.
Tensor math_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                      const Tensor& mask_in, const AttentionOptions& options) {
  Tensor mask = mask_in;
  if (options.causal) {
    const Tensor ones = full(e, {query.size(-2), key.size(-2)}, DType::boolean);
    mask = triangle(e, ones);
  }
  mask = additive_mask(e, mask, query.dtype());
  const Tensor scaled_query = mul_scalar(e, query, 1);
  const Tensor key_heads = options.grouped ? grouped_heads(e, key, query.size(1) / key.size(1)) : key;
  const Tensor value_heads =
      options.grouped ? grouped_heads(e, value, query.size(1) / value.size(1)) : value;
  Tensor weights = matmul(e, scaled_query, mul_scalar(e, transpose(e, key_heads, -2, -1), 1));
  if (mask) weights = add(e, weights, mask);
  weights = softmax(e, weights, -1);
  weights = dropout(e, weights, options.dropout, true);
  return matmul(e, weights, value_heads);
}

// repeat_interleave along the heads: expand, then a copy.
Tensor grouped_heads(Eager& e, const Tensor& tensor, int64_t repeats) {
  if (repeats == 1) return tensor;
  const Dims sizes{tensor.size(0), tensor.size(1), repeats, tensor.size(2), tensor.size(3)};
  const Tensor expanded = expand(e, unsqueeze(e, tensor, 2), sizes);
  return reshape(e, clone_contiguous(e, expanded),
                 {tensor.size(0), tensor.size(1) * repeats, tensor.size(2), tensor.size(3)});
}

AttentionBackend chosen_backend(const Eager& e, const Tensor& query, const Tensor& value,
                                const Tensor& mask) {
  const Environment& env = e.environment();
  const bool half = query.dtype() == DType::f16 || query.dtype() == DType::bf16;
  const int64_t head = query.size(-1);
  if (env.compute_capability == 0) return AttentionBackend::math;
  // Flash wants heads of one size; those of latent attention have two.
  const bool one_size = value.size(-1) == head;
  if (half && !mask && one_size && env.compute_capability >= 80 && head <= 256) {
    return AttentionBackend::flash;
  }
  return AttentionBackend::efficient;
}

}  // namespace

Tensor scaled_dot_product_attention(Eager& e, const Tensor& query, const Tensor& key,
                                    const Tensor& value, const Tensor& mask,
                                    const AttentionOptions& options,
                                    std::optional<AttentionBackend> backend) {
  switch (backend.value_or(chosen_backend(e, query, value, mask))) {
    case AttentionBackend::math:
      return math_attention(e, query, key, value, mask, options);
    case AttentionBackend::flash:
    case AttentionBackend::cudnn:
      return fused_attention(e, "ScaledDotProductFlashAttentionBackward0", query, key, value, mask,
                             options.causal, query.size(-2), {2}, true);
    case AttentionBackend::efficient: {
      // Rows are padded to a multiple of 32 (kAlignLSE), and there are none where no backward is
      // to come (compute_logsumexp).
      const bool trains = e.grad_enabled() && (query->requires_grad || key->requires_grad ||
                                               value->requires_grad);
      const int64_t rows = trains ? (query.size(-2) + 31) / 32 * 32 : 0;
      Tensor bias = additive_mask(e, mask, query.dtype());
      bias = aligned_mask(e, bias, query, key);
      return fused_attention(e, "ScaledDotProductEfficientAttentionBackward0", query, key, value,
                             bias, options.causal, rows, {}, false);
    }
  }
  return {};
}

Tensor flash_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options) {
  Tensor out = e.empty(query.sizes(), query.dtype());
  Tensor logsumexp = e.empty({query.size(0), query.size(2), query.size(1)}, DType::f32);
  const double pairs = static_cast<double>(query.size(1)) * static_cast<double>(key.size(1));
  const double flops = 4.0 * static_cast<double>(query.size(0) * query.size(2) * query.size(3)) *
                       pairs / (options.causal ? 2 : 1);
  e.kernel(OpKind::flash_attention, flops, query.bytes() + key.bytes() + value.bytes(),
           out.bytes());
  Tensor random_state = e.empty({2}, DType::i64);  // kept whether there is dropout or not
  if (Node* node = e.history("FlashAttnFuncBackward", {&query, &key, &value}, {&out})) {
    for (const Tensor& tensor : {query, key, value, out, logsumexp, random_state}) {
      node->save(tensor);
    }
    node->apply = [flops](Eager& eager, Node& n, Grads& g, Grads& result) {
      for (size_t i = 0; i < 3; ++i) {
        result[i] = eager.empty(n.saved[i].sizes(), n.saved[i].dtype());
      }
      const Tensor& q = n.saved[0];
      const Tensor& k = n.saved[1];
      const AttentionSizes sizes{q.size(0), q.size(2), k.size(2), q.size(1), k.size(1), q.size(3)};
      const ScratchBlocks blocks = flash_backward_blocks(eager, sizes, q.dtype());
      eager.kernel(OpKind::flash_attention, 2.5 * flops, 3 * g[0].bytes(), 3 * g[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
