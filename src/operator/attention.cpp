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

// [b, h, s, head] stored as [b, s, h, head]: what the efficient kernels return. The flash kernels
// see [b, s, h, d] and make their results like that, so these keep the layout of their argument.
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

// Rows are padded to a multiple of 16 elements (_efficient_attention_backward).
Tensor mask_gradient(Eager& e, const Tensor& mask) {
  constexpr int64_t kAlignment = 16;
  Dims padded = mask.sizes();
  padded.back() = (padded.back() + kAlignment - 1) / kAlignment * kAlignment;
  return e.empty_strided(mask.sizes(), contiguous_strides(padded), mask.dtype());
}

// The fused backends: one kernel each way; they keep their inputs, their output and one float32
// number for each query row.
struct FusedKernel {
  const char* name = "";
  bool is_flash = false;       // lays out and holds what flash does
  bool before_hopper = false;  // has none of Hopper's instructions
};

Tensor fused_attention(Eager& e, const FusedKernel& kernel, const Tensor& query, const Tensor& key,
                       const Tensor& value, const Tensor& mask, bool causal, int64_t logsumexp_rows,
                       const Dims& seed_sizes) {
  Tensor out;
  Tensor logsumexp;
  Tensor seed;  // the random state for dropout, kept whether there is dropout or not
  Tensor offset;
  const double flops = attention_flops(query, key, causal);
  if (!e.recall(OpKind::sdpa, {&out, &logsumexp, &seed, &offset})) {
    out = fused_result(e, query, value.size(-1), kernel.is_flash);
    logsumexp = e.empty({query.size(0), query.size(1), logsumexp_rows}, DType::f32);
    seed = e.empty(seed_sizes, DType::i64);
    offset = e.empty({}, DType::i64);
    e.kernel({.kind = OpKind::sdpa,
              .flops = flops,
              .bytes_read = query.bytes() + key.bytes() + value.bytes(),
              .bytes_written = out.bytes(),
              .element_bytes = static_cast<uint8_t>(element_size(out.dtype())),
              .before_hopper = kernel.before_hopper});
    e.made(OpKind::sdpa, {&out, &logsumexp, &seed, &offset});
  }
  if (Node* node = e.history(kernel.name, {&query, &key, &value, &mask}, {&out})) {
    for (const Tensor& tensor : {query, key, value, mask, out, logsumexp, seed, offset}) {
      node->save(tensor);
    }
    node->apply = [flops, kernel](Eager& eager, Node& n, Grads& g, Grads& result) {
      // All three, wanted or not.
      for (const size_t i : {Saved::query, Saved::key, Saved::value}) {
        const Tensor& input = n.saved[i];
        result[i] = fused_result(eager, input, input.size(-1), kernel.is_flash);
      }
      const Tensor& q = n.saved[Saved::query];
      const Tensor& k = n.saved[Saved::key];
      const AttentionSizes sizes{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
      if (n.needs(3)) result[3] = mask_gradient(eager, n.saved[Saved::mask]);
      const ScratchBlocks blocks = kernel.is_flash
                                       ? flash_backward_blocks(eager, sizes, q.dtype())
                                       : efficient_backward_blocks(eager, sizes, q.dtype());
      eager.kernel({.kind = OpKind::sdpa,
                    .flops = 2.5 * flops,
                    .bytes_read = 3 * g[0].bytes(),
                    .bytes_written = 3 * g[0].bytes(),
                    .element_bytes = static_cast<uint8_t>(element_size(q.dtype())),
                    .before_hopper = kernel.before_hopper});
    };
    e.finish(*node);
  }
  return out;
}

// softmax that answers zeros where a whole row is masked (_safe_softmax): the row's scores are
// asked first, and what they say is written into the result.
Tensor safe_softmax(Eager& e, const Tensor& scores) {
  Tensor weights = softmax(e, scores, -1);
  const Tensor hidden = compare(e, scores, nullptr);
  Dims rows = scores.sizes();
  rows.back() = 1;
  const Tensor hidden_rows = e.empty(rows, DType::boolean);
  const Tensor zero = full(e, {}, weights.dtype());
  return weights;
}

// The composite (_scaled_dot_product_attention_math): scaled query and key, product, mask, softmax,
// dropout, product; half types in float32, for accuracy.
Tensor math_attention(Eager& e, const Tensor& query_in, const Tensor& key_in,
                      const Tensor& value_in, const Tensor& mask_in,
                      const AttentionOptions& options) {
  const DType origin = query_in.dtype();
  const DType type = is_half(origin) ? DType::f32 : origin;
  Tensor mask = additive_mask(e, mask_in, origin);
  Tensor query = to(e, query_in, type);
  Tensor key = to(e, key_in, type);
  Tensor value = to(e, value_in, type);
  query = mul_scalar(e, query, 1);
  if (options.causal) {
    mask = triangle(e, full(e, {query.size(-2), key.size(-2)}, DType::boolean));
    mask = additive_mask(e, mask, type);
  }
  if (options.grouped) {
    const int64_t repeats = query.size(1) / key.size(1);
    Tensor more_keys = grouped_heads(e, key, repeats);
    value = grouped_heads(e, value, repeats);
    key = std::move(more_keys);
  }
  // The mask is added in place.
  Tensor scores = matmul(e, query, mul_scalar(e, transpose(e, key, -2, -1), 1));
  Tensor weights = safe_softmax(e, scores);
  scores = Tensor();
  weights = dropout(e, weights, options.dropout, true);
  return to(e, matmul(e, weights, value), origin);
}

// repeat_interleave along the heads: expand, then a copy.
Tensor grouped_heads(Eager& e, const Tensor& tensor, int64_t repeats) {
  if (repeats == 1) return tensor;
  const Dims sizes{tensor.size(0), tensor.size(1), repeats, tensor.size(2), tensor.size(3)};
  const Tensor expanded = expand(e, unsqueeze(e, tensor, 2), sizes);
  return reshape(e, clone_contiguous(e, expanded),
                 {tensor.size(0), tensor.size(1) * repeats, tensor.size(2), tensor.size(3)});
}

AttentionCall call_of(const Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                      const Tensor& mask, const AttentionOptions& options) {
  AttentionCall call;
  call.dtype = query.dtype();
  call.query_length = query.size(-2);
  call.key_length = key.size(-2);
  call.head = query.size(-1);
  call.value_head = value.size(-1);
  call.has_mask = static_cast<bool>(mask);
  call.causal = options.causal;
  call.grouped = options.grouped && key.size(1) != query.size(1);
  call.broadcasts = !options.grouped && key.size(1) != query.size(1);
  call.trains =
      e.grad_enabled() && (query->requires_grad || key->requires_grad || value->requires_grad);
  call.dropout = options.dropout;
  return call;
}

// Heads of a multiple of 8, as the flash kernel wants them (pad_last_dim).
Tensor padded_head(Eager& e, const Tensor& tensor) {
  constexpr int64_t kAlignment = 8;
  const int64_t missing = (kAlignment - tensor.size(-1) % kAlignment) % kAlignment;
  if (missing == 0) return tensor;
  const std::array<int64_t, 2> padding{0, missing};
  return pad(e, tensor, padding);
}

Tensor flash_kernel(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                    bool causal) {
  const Tensor out = fused_attention(e, {"ScaledDotProductFlashAttentionBackward0", true, true},
                                     padded_head(e, query), padded_head(e, key),
                                     padded_head(e, value), Tensor(), causal, query.size(-2), {2});
  const int64_t head = query.size(-1);
  return out.size(-1) == head ? out : slice(e, out, -1, 0, head);
}

// One random state each for the kernel's dropout, on the device.
Tensor cudnn_kernel(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                    const Tensor& mask, bool causal) {
  return fused_attention(e, {"ScaledDotProductCudnnAttentionBackward0", true, false}, query, key,
                         value, additive_mask(e, mask, query.dtype()), causal, query.size(-2), {});
}

// Rows of the softmax's logarithms are padded to a multiple of 32 (kAlignLSE), and there are none
// where no backward is to come (compute_logsumexp).
Tensor efficient_kernel(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                        const Tensor& mask, const AttentionCall& call) {
  const int64_t rows = call.trains ? (query.size(-2) + 31) / 32 * 32 : 0;
  Tensor bias = additive_mask(e, mask, query.dtype());
  bias = aligned_mask(e, bias, query, key);
  return fused_attention(e, {"ScaledDotProductEfficientAttentionBackward0", false, true}, query,
                         key, value, bias, call.causal, rows, {});
}

}  // namespace

Tensor scaled_dot_product_attention(Eager& e, const Tensor& query, const Tensor& key,
                                    const Tensor& value, const Tensor& mask,
                                    const AttentionOptions& options) {
  const AttentionCall call = call_of(e, query, key, value, mask, options);
  const std::optional<AttentionBackend> named = e.environment().attention;
  if (named) {
    const char* reason = refusal(*named, e.environment(), call);
    if (reason != nullptr) {
      throw Impossible{reason, "name another kernel, or --attention sdpa for PyTorch's own choice"};
    }
  }
  switch (named.value_or(chosen_backend(e.environment(), call))) {
    case AttentionBackend::math:
      return math_attention(e, query, key, value, mask, options);
    case AttentionBackend::flash:
      return flash_kernel(e, query, key, value, options.causal);
    case AttentionBackend::cudnn:
      return cudnn_kernel(e, query, key, value, mask, options.causal);
    case AttentionBackend::efficient:
      return efficient_kernel(e, query, key, value, mask, call);
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
  KernelWork work{.kind = OpKind::flash_attention,
                  .flops = flops,
                  .bytes_read = query.bytes() + key.bytes() + value.bytes(),
                  .bytes_written = out.bytes(),
                  .element_bytes = static_cast<uint8_t>(element_size(out.dtype())),
                  .rows = query.size(1),
                  .keys = key.size(1),
                  .before_hopper = true};
  e.kernel(work);
  Tensor random_state = e.empty({2}, DType::i64);  // kept whether there is dropout or not
  if (Node* node = e.history("FlashAttnFuncBackward", {&query, &key, &value}, {&out})) {
    for (const Tensor& tensor : {query, key, value, out, logsumexp, random_state}) {
      node->save(tensor);
    }
    work.flops *= 2.5;
    work.bytes_read = work.bytes_written = 3 * out.bytes();
    node->apply = [work](Eager& eager, Node& n, Grads&, Grads& result) {
      for (size_t i = 0; i < 3; ++i) {
        result[i] = eager.empty(n.saved[i].sizes(), n.saved[i].dtype());
      }
      const Tensor& q = n.saved[0];
      const Tensor& k = n.saved[1];
      const AttentionSizes sizes{q.size(0), q.size(2), k.size(2), q.size(1), k.size(1), q.size(3)};
      const ScratchBlocks blocks = flash_backward_blocks(eager, sizes, q.dtype());
      eager.kernel(work);
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
