// Liger-Kernel's operators. Source: src/liger_kernel/ops/*.py of the releases named below; a custom
// function's local variables live until it returns, so they are named here in the same order.
#include <algorithm>
#include <bit>

#include "operator/functional.h"
#include "operator/fused_kernels.h"
#include "operator/scratch.h"

namespace headroom::op {

namespace {

constexpr Version kPartialWeightGradients{0, 4};  // rms_norm: one partial sum a multiprocessor
constexpr Version kHalfPrecisionChunks{0, 5};     // the fused loss: no float32 copy of the logits

void fused(Eager& e, double flops, int64_t read, int64_t written) {
  e.kernel(OpKind::fused_kernel, flops, read, written);
}

Dims rows_of(const Tensor& input) {
  return {input.elements() / std::max<int64_t>(input.size(-1), 1)};
}

// How many targets count: (target != ignore_index).sum(), a number on the device.
Tensor counted_targets(Eager& e, const Tensor& target) {
  const Tensor is_counted = compare(e, target, nullptr);
  return sum(e, is_counted, {}, false);
}

Tensor column_sums(Eager& e, const Tensor& rows) {
  const int first[] = {0};
  return sum(e, rows, first, false);
}

double elements_of(const Tensor& tensor) { return static_cast<double>(tensor.elements()); }

}  // namespace

Tensor liger_rms_norm(Eager& e, const Tensor& input_in, const Tensor& weight, Version liger) {
  const Tensor input = contiguous(e, input_in);
  Tensor out = e.empty(input.sizes(), input.dtype());
  const Tensor rstd = e.empty(rows_of(input), DType::f32);
  fused(e, 4 * elements_of(input), input.bytes(), out.bytes());
  if (Node* node = e.history("LigerRMSNormFunctionBackward", {&input, &weight}, {&out})) {
    for (const Tensor& tensor : {input, weight, rstd}) node->save(tensor);
    node->apply = [liger](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      const Tensor& x = n.saved[0];
      const DType type = n.saved[1].dtype();
      // Every row's own share of the weight's gradient until 0.4; a multiprocessor's afterwards.
      const bool partial = liger >= kPartialWeightGradients;
      const Tensor shares =
          partial ? eager.empty({eager.environment().multiprocessors, x.size(-1)}, DType::f32)
                  : eager.empty_like(x, type);
      fused(eager, 8 * elements_of(x), 2 * x.bytes(), x.bytes() + shares.bytes());
      result[0] = detach(eager, grad);
      const Tensor summed = column_sums(eager, shares);
      result[1] = to(eager, summed, type);
    };
    e.finish(*node);
  }
  return out;
}

Tensor liger_layer_norm(Eager& e, const Tensor& input_in, const Tensor& weight,
                        const Tensor& bias) {
  const Tensor input = contiguous(e, input_in);
  Tensor out = e.empty(input.sizes(), input.dtype());
  const Tensor mean = e.empty(rows_of(input), input.dtype());
  const Tensor rstd = e.empty(rows_of(input), input.dtype());
  fused(e, 6 * elements_of(input), input.bytes(), out.bytes());
  if (Node* node = e.history("LigerLayerNormFunctionBackward", {&input, &weight, &bias}, {&out})) {
    for (const Tensor& tensor : {input, weight, bias, mean, rstd}) node->save(tensor);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      const Tensor& x = n.saved[0];
      const DType type = n.saved[1].dtype();
      const Dims shares{eager.environment().multiprocessors, x.size(-1)};
      result[0] = eager.empty(x.sizes(), x.dtype());
      const Tensor weight_shares = eager.empty(shares, type);
      const Tensor bias_shares = eager.empty(shares, type);
      fused(eager, 10 * elements_of(x), 2 * x.bytes(), x.bytes());
      result[1] = column_sums(eager, weight_shares);
      result[2] = column_sums(eager, bias_shares);
    };
    e.finish(*node);
  }
  return out;
}

namespace {

// [b, h, s, d] rotated where it lies if its storage is [b, s, h, d], else in a copy laid out so.
Tensor rotated(Eager& e, const Tensor& tensor) {
  const Tensor rows = contiguous(e, transpose(e, e.detach(tensor), 1, 2));
  fused(e, 3 * elements_of(rows), rows.bytes(), rows.bytes());
  return e.detach(transpose(e, rows, 1, 2));
}

}  // namespace

std::pair<Tensor, Tensor> liger_rotary(Eager& e, const Tensor& query, const Tensor& key,
                                       const Tensor& cos_in, const Tensor& sin_in) {
  Tensor query_out = rotated(e, query);
  Tensor key_out = rotated(e, key);
  const Tensor cos = contiguous(e, cos_in);
  const Tensor sin = contiguous(e, sin_in);
  if (Node* node = e.history("LigerRopeFunctionBackward", {&query, &key}, {&query_out, &key_out})) {
    node->save(cos);
    node->save(sin);
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      for (size_t i = 0; i < 2; ++i) {
        if (g[i]) result[i] = rotated(eager, g[i]);
      }
    };
    e.finish(*node);
  }
  return {query_out, key_out};
}

Tensor liger_gated(Eager& e, const Tensor& gate_in, const Tensor& up_in, OpKind activation) {
  static_cast<void>(activation);
  const Tensor gate = contiguous(e, gate_in);
  const Tensor up = contiguous(e, up_in);
  Tensor out = e.empty(gate.sizes(), gate.dtype());
  fused(e, 6 * elements_of(out), gate.bytes() + up.bytes(), out.bytes());
  if (Node* node = e.history("LigerGatedFunctionBackward", {&gate, &up}, {&out})) {
    node->save(gate);
    node->save(up);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      fused(eager, 12 * elements_of(grad), 3 * grad.bytes(), 2 * grad.bytes());
      result[0] = detach(eager, n.saved[0]);
      result[1] = detach(eager, n.saved[1]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor liger_cross_entropy(Eager& e, const Tensor& logits_in, const Tensor& target, Version liger) {
  GradMode no_grad(e, false);
  const Tensor logits = logits_in->strides.back() == 1 ? logits_in : contiguous(e, logits_in);
  const Tensor losses = zeros(e, {logits.size(0)}, logits.dtype());
  counted_targets(e, target);  // read by the host and dropped
  fused(e, 6 * elements_of(logits), 2 * logits.bytes(), logits.bytes());
  Tensor loss = sum(e, losses, {}, false);
  if (liger < Version{0, 4}) loss = div_scalar(e, loss, 1);
  e.set_grad_enabled(true);
  const bool grad_wanted = logits_in.requires_grad();
  if (Node* node = grad_wanted
                       ? e.history("LigerCrossEntropyFunctionBackward", {&logits_in}, {&loss})
                       : nullptr) {
    node->save(e.detach(logits));
    node->apply = [](Eager& eager, Node& n, Grads&, Grads& result) {
      const Tensor one =
          zeros(eager, {}, DType::f32);  // what the incoming gradient is held against
      result[0] = detach(eager, n.saved[0]);
    };
    e.finish(*node);
  }
  return loss;
}

int64_t liger_chunk_rows(int64_t rows, int64_t width, int64_t classes) {
  const int64_t factor = (classes + width - 1) / width;
  const int64_t wanted = (rows + factor - 1) / factor;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(wanted, 1))));
}

namespace {

struct LossGradients {
  Tensor loss;
  Tensor hidden;
  Tensor weight;  // undefined for a frozen head
};

// What a chunk's Python variables hold until the next chunk takes their names.
struct Chunk {
  Tensor logits;
  Tensor gradient;
  Tensor share;
};

void run_chunk(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& target,
               const Tensor& count, const Tensor& losses, Chunk& chunk, Version liger) {
  const DType type = input.dtype();
  chunk.logits = mm(e, input, t(e, weight));
  counted_targets(e, target);
  const bool upcasts = liger < kHalfPrecisionChunks;
  if (upcasts) chunk.logits = to(e, chunk.logits, DType::f32);
  fused(e, 6 * elements_of(chunk.logits), 2 * chunk.logits.bytes(), chunk.logits.bytes());
  if (upcasts) {
    chunk.logits = to(e, chunk.logits, type);
    chunk.share = div_scalar(e, count, 1);
    mul(e, losses, chunk.share);
    chunk.gradient = mul_scalar(e, chunk.logits, 1);
  } else {
    chunk.gradient = chunk.logits;
  }
  mm(e, chunk.gradient, weight);  // copied into its rows of the hidden states' gradient
}

LossGradients fused_loss(Eager& e, const Tensor& hidden, const Tensor& weight, const Tensor& target,
                         Version liger) {
  LossGradients out;
  const int64_t rows = hidden.size(0);
  const int64_t step = liger_chunk_rows(rows, hidden.size(1), weight.size(0));
  if (weight.requires_grad()) out.weight = zeros_like(e, weight);
  out.hidden = zeros_like(e, hidden);
  const Tensor losses = zeros(e, {rows}, DType::f32);
  const Tensor count = counted_targets(e, target);
  Chunk chunk;
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(begin + step, rows);
    run_chunk(e, slice(e, hidden, 0, begin, end), weight, slice(e, target, 0, begin, end), count,
              slice(e, losses, 0, begin, end), chunk, liger);
    if (!out.weight) continue;
    // Added by the product itself (addmm with out=).
    e.use_blas();
    e.kernel(OpKind::addmm, 2.0 * elements_of(weight) * static_cast<double>(chunk.logits.size(0)),
             chunk.logits.bytes(), out.weight.bytes());
  }
  out.loss = sum(e, losses, {}, false);
  return out;
}

}  // namespace

Tensor liger_fused_linear_cross_entropy(Eager& e, const Tensor& hidden, const Tensor& weight,
                                        const Tensor& target, Version liger) {
  LossGradients made;
  {
    GradMode no_grad(e, false);
    made = fused_loss(e, hidden, weight, target, liger);
  }
  if (Node* node = e.history("LigerFusedLinearCrossEntropyFunctionBackward", {&hidden, &weight},
                             {&made.loss})) {
    node->save(e.detach(made.hidden));
    node->save(made.weight ? e.detach(made.weight) : Tensor());
    node->apply = [](Eager& eager, Node& n, Grads&, Grads& result) {
      const Tensor one = zeros(eager, {}, DType::f32);
      if (n.needs(0)) result[0] = detach(eager, n.saved[0]);
      if (n.needs(1)) result[1] = detach(eager, n.saved[1]);
    };
    e.finish(*node);
  }
  return made.loss;
}

Tensor liger_embedding(Eager& e, const Tensor& weight, const Tensor& indices) {
  Dims sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  Tensor out = e.empty(sizes, weight.dtype());
  fused(e, 0, out.bytes(), out.bytes());
  if (Node* node = e.history("LigerEmbeddingFunctionBackward", {&weight}, {&out})) {
    node->save(indices);
    node->save(weight);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      result[0] = zeros_like(eager, n.saved[1]);
      fused(eager, elements_of(grad), grad.bytes(), grad.bytes());
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
