#include "operator/megatron.h"

#include <algorithm>

#include "operator/parallel_rows.h"

namespace headroom::op {

namespace {

// A gradient summed down to the last dimension.
Tensor column_sums(Eager& e, const Tensor& grad) {
  Tensor out = e.empty({grad.size(-1)}, grad.dtype());
  e.kernel(OpKind::sum, elements_of(grad), grad.bytes(), out.bytes());
  return out;
}

}  // namespace

Tensor bias_dropout_add(Eager& e, const Tensor& x, const Tensor& bias, const Tensor& residual,
                        double probability) {
  const bool drops = probability > 0;
  const DType type = promote(x.dtype(), residual.dtype());
  Tensor mask;
  if (drops) mask = e.empty(x.sizes(), DType::boolean);
  Tensor out = e.empty(x.sizes(), type);
  row_kernel(e, OpKind::dropout, x, 3, x.bytes() + residual.bytes(),
             out.bytes() + (drops ? mask.bytes() : 0));
  Node* node = e.history("CompiledFunctionBackward", {&x, &bias, &residual}, {&out});
  if (node == nullptr) return out;
  if (drops) node->save(mask);
  node->apply = [drops, type = x.dtype()](Eager& eager, Node& n, Grads& g, Grads& result) {
    Tensor grad = g[0];
    if (drops) {
      grad = eager.empty(g[0].sizes(), type);
      row_kernel(eager, OpKind::dropout, grad, 1, g[0].bytes() + n.saved[0].bytes(), grad.bytes());
    }
    if (n.needs(0)) result[0] = grad;
    if (n.needs(1)) result[1] = column_sums(eager, grad);
    if (n.needs(2)) result[2] = g[0];
  };
  e.finish(*node);
  return out;
}

Tensor bias_gelu(Eager& e, const Tensor& x, const Tensor& bias) {
  Tensor out = e.empty(x.sizes(), x.dtype());
  row_kernel(e, OpKind::gelu, x, 10, x.bytes(), out.bytes());
  Node* node = e.history("GeLUFunctionBackward", {&x, &bias}, {&out});
  if (node == nullptr) return out;
  node->save(x);
  node->save(bias);
  node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
    const Tensor grad = eager.empty(n.saved[0].sizes(), n.saved[0].dtype());
    row_kernel(eager, OpKind::gelu, grad, 15, 2 * grad.bytes(), grad.bytes());
    result[0] = grad;
    if (n.needs(1)) result[1] = column_sums(eager, grad);
    (void)g;
  };
  e.finish(*node);
  return out;
}

Tensor bias_swiglu(Eager& e, const Tensor& x, const Tensor& bias) {
  Dims sizes = x.sizes();
  sizes.back() /= 2;
  Tensor out = e.empty(sizes, x.dtype());
  row_kernel(e, OpKind::silu, out, 6, x.bytes(), out.bytes());
  Node* node = e.history("SwiGLUFunctionBackward", {&x, &bias}, {&out});
  if (node == nullptr) return out;
  node->save(x);
  node->save_if(static_cast<bool>(bias), bias);
  node->apply = [](Eager& eager, Node& n, Grads&, Grads& result) {
    const Tensor grad = eager.empty(n.saved[0].sizes(), n.saved[0].dtype());
    row_kernel(eager, OpKind::silu, grad, 6, 2 * grad.bytes(), grad.bytes());
    result[0] = grad;
    if (n.needs(1)) result[1] = column_sums(eager, grad);
  };
  e.finish(*node);
  return out;
}

Tensor weighted_swiglu(Eager& e, const Tensor& x, const Tensor& weights) {
  Tensor out = e.empty({x.size(0), x.size(1) / 2}, x.dtype());
  e.kernel(OpKind::silu, 7 * elements_of(out), x.bytes(), out.bytes());
  Node* node = e.history("WeightedSwiGLUFunctionBackward", {&x, &weights}, {&out});
  if (node == nullptr) return out;
  node->save(x);
  node->save(weights);
  node->apply = [](Eager& eager, Node& n, Grads&, Grads& result) {
    result[0] = eager.empty(n.saved[0].sizes(), n.saved[0].dtype());
    if (n.needs(1)) result[1] = eager.empty(n.saved[1].sizes(), n.saved[1].dtype());
    eager.kernel(OpKind::silu, 7 * elements_of(result[0]), 2 * result[0].bytes(),
                 result[0].bytes());
  };
  e.finish(*node);
  return out;
}

Tensor column_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                     const Tensor& gathered, const ParallelLinear& module) {
  const bool gathers = module.sequence_parallel && module.ranks > 1;
  Tensor whole = input;
  if (gathers) {
    const Dims sizes{input.size(0) * module.ranks, input.size(1), input.size(2)};
    whole = e.alias(gathered, sizes, contiguous_strides(sizes));
    whole->base = Tensor();
  }
  if (gathers) e.collective(OpKind::all_gather, input.bytes(), whole.bytes());
  Tensor out;
  {
    GradMode no_grad(e, false);
    out = matmul(e, whole, t(e, weight));
    if (bias) out = add(e, out, bias);
    out->base = Tensor();
  }
  Node* node = e.history("LinearWithGradAccumulationAndAsyncCommunicationBackward",
                         {&input, &weight, &bias}, {&out});
  if (node == nullptr) return out;
  node->save(input);
  node->save(weight);
  node->apply = [module, gathers, whole = gathers ? whole : Tensor()](Eager& eager, Node& n,
                                                                      Grads& g, Grads& result) {
    const Tensor grad = to(eager, g[0], n.saved[0].dtype());
    const Tensor& total = gathers ? whole : n.saved[0];
    if (gathers) eager.collective(OpKind::all_gather, n.saved[0].bytes(), total.bytes());
    const Tensor sum = matmul(eager, grad, n.saved[1]);
    const Tensor grad_rows = rows_of(eager, contiguous(eager, grad));
    result[0] = sum;
    if (gathers) {
      result[0] = eager.empty(n.saved[0].sizes(), n.saved[0].dtype());
      eager.collective(OpKind::reduce_scatter, sum.bytes(), result[0].bytes());
    } else if (module.ranks > 1) {
      eager.collective(OpKind::all_reduce, sum.bytes(), sum.bytes());
    }
    if (n.needs(1) && module.fused_accumulation) {
      eager.kernel(OpKind::mm, 2 * elements_of(grad) * static_cast<double>(total.size(-1)),
                   grad.bytes() + total.bytes(), n.saved[1].bytes(), grad.dtype());
    } else if (n.needs(1)) {
      result[1] = mm(eager, t(eager, grad_rows), rows_of(eager, total));
    }
    if (n.needs(2)) result[2] = column_sums(eager, grad);
  };
  e.finish(*node);
  return out;
}

Tensor sequence_gather(Eager& e, const Tensor& part, const Tensor& buffer, int64_t ranks) {
  const Dims sizes{part.size(0) * ranks, part.size(1)};
  Tensor whole;
  if (buffer) {
    whole = e.alias(buffer, sizes, contiguous_strides(sizes));
    whole->base = Tensor();
    e.collective(OpKind::all_gather, part.bytes(), whole.bytes());
  } else {
    whole = gathered_rows(e, part, ranks);
  }
  if (Node* node = e.history("_GatherFromSequenceParallelRegionBackward", {&part}, {&whole})) {
    node->apply = [ranks](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = scattered_rows(eager, contiguous(eager, g[0]), ranks);
    };
    e.finish(*node);
  }
  return whole;
}

Tensor sequence_scatter(Eager& e, const Tensor& whole, int64_t ranks) {
  Tensor part = scattered_rows(e, whole, ranks);
  if (Node* node = e.history("_ReduceScatterToSequenceParallelRegionBackward", {&whole}, {&part})) {
    node->apply = [ranks](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = gathered_rows(eager, contiguous(eager, g[0]), ranks);
    };
    e.finish(*node);
  }
  return part;
}

namespace {

// apply_router_token_dropping: what an expert has no room for is masked out of the probabilities.
// The mask takes the place of what was chosen.
void drop_tokens(Eager& e, Tensor& probabilities, Tensor& chosen) {
  Tensor kept = e.empty(chosen.sizes(), DType::boolean);
  e.kernel(OpKind::topk, elements_of(probabilities), probabilities.bytes(), kept.bytes());
  Tensor masked = e.empty(probabilities.sizes(), probabilities.dtype());
  e.kernel(OpKind::mul, elements_of(masked), probabilities.bytes() + kept.bytes(), masked.bytes());
  chosen = std::move(kept);
  probabilities = std::move(masked);
}

}  // namespace

Tensor expert_router(Eager& e, const Tensor& rows, const Tensor& weight, int64_t choices,
                     bool drops) {
  const Dims all{rows.size(0), weight.size(0)};
  const Dims best{rows.size(0), choices};
  Tensor logits;
  {
    GradMode no_grad(e, false);
    logits = mm(e, rows, t(e, weight));
  }
  const Tensor scores = e.empty(best, logits.dtype());
  const Tensor index = e.empty(best, DType::i64);
  e.kernel(OpKind::topk, elements_of(logits), logits.bytes(), scores.bytes() + index.bytes());
  const Tensor softmax = e.empty(best, DType::f32);
  Tensor choice = e.empty(all, DType::boolean);
  Tensor out = e.empty(all, logits.dtype());
  e.kernel(OpKind::scatter, 0, softmax.bytes(), out.bytes() + choice.bytes());
  if (drops) drop_tokens(e, out, choice);
  Node* node = e.history("RouterGatingLinearFunctionBackward", {&rows, &weight}, {&out});
  if (node == nullptr) return out;
  for (const Tensor& tensor : {rows, weight, index, softmax, choice}) node->save(tensor);
  node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
    const Tensor wide = eager.empty(n.saved[3].sizes(), DType::f32);
    const Tensor grad = eager.empty(g[0].sizes(), n.saved[0].dtype());
    eager.kernel(OpKind::scatter, 0, g[0].bytes(), grad.bytes());
    if (n.needs(0)) result[0] = mm(eager, grad, n.saved[1]);
    if (n.needs(1)) result[1] = mm(eager, t(eager, grad), n.saved[0]);
  };
  e.finish(*node);
  return out;
}

Tensor expert_combine(Eager& e, const Tensor& rows, const Tensor& index, int64_t tokens,
                      bool deterministic) {
  Tensor out = e.empty({tokens, rows.size(1)}, rows.dtype());
  e.kernel(OpKind::index_add, elements_of(rows), rows.bytes() + index.bytes(), out.bytes());
  Node* node = e.history("ScatterAddBackward0", {&rows}, {&out});
  if (node == nullptr) return out;
  node->save(index);
  if (deterministic) node->save(rows);
  node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
    GradMode no_grad(eager, false);
    result[0] = index_select(eager, g[0], 0, n.saved[0]);
  };
  e.finish(*node);
  return out;
}

std::vector<Tensor> latent_keys(Eager& e, const Tensor& both, const Tensor& positions,
                                int64_t key_size) {
  Dims sizes = both.sizes();
  sizes[3] = key_size + positions.size(3);
  std::vector<Tensor> out(2);
  out[0] = e.empty(sizes, both.dtype());
  sizes[3] = both.size(3) - key_size;
  out[1] = e.empty(sizes, both.dtype());
  e.kernel(OpKind::latent_keys, 3 * elements_of(positions), both.bytes() + positions.bytes(),
           out[0].bytes() + out[1].bytes());
  const std::vector<Tensor> inputs{both, positions};
  Node* node = e.history("_FusedMLARoPEKVSplitBackward", inputs, out);
  if (node == nullptr) return out;
  node->apply = [type = both.dtype(), whole = both.sizes(), turned = positions.sizes()](
                    Eager& eager, Node&, Grads& g, Grads& result) {
    const Tensor keys = contiguous(eager, g[0]);
    const Tensor values = contiguous(eager, g[1]);
    result[0] = eager.empty(whole, type);
    result[1] = eager.empty(turned, type);
    eager.kernel(OpKind::latent_keys, 3 * elements_of(result[1]), keys.bytes() + values.bytes(),
                 result[0].bytes() + result[1].bytes());
  };
  e.finish(*node);
  return out;
}

Tensor parallel_cross_entropy(Eager& e, const Tensor& logits, const Tensor& target, bool compiled) {
  Tensor loss;
  Tensor softmax;
  Tensor outside;
  Tensor index;
  {
    GradMode no_grad(e, false);
    softmax = to(e, logits, DType::f32);
    const Dims tokens{target.elements()};
    const Tensor largest = e.empty(target.sizes(), DType::f32);
    e.kernel(OpKind::max, elements_of(softmax), softmax.bytes(), largest.bytes());
    e.collective(OpKind::all_reduce, largest.bytes(), largest.bytes());
    e.kernel(OpKind::sub, elements_of(softmax), softmax.bytes(), softmax.bytes());
    outside = e.empty(target.sizes(), DType::boolean);
    index = e.empty(target.sizes(), DType::i64);
    const Tensor places = arange(e, target.elements(), DType::i64);
    const Tensor predicted = e.empty(tokens, DType::f32);
    e.kernel(OpKind::exp, elements_of(softmax), softmax.bytes(), softmax.bytes());
    const Tensor sums = e.empty(target.sizes(), DType::f32);
    e.kernel(OpKind::sum, elements_of(softmax), softmax.bytes(), sums.bytes());
    e.collective(OpKind::all_reduce, 2 * sums.bytes(), 2 * sums.bytes());
    loss = e.empty(target.sizes(), DType::f32);
    e.kernel(OpKind::div, elements_of(softmax), softmax.bytes(), softmax.bytes());
  }
  Node* node = e.history("_VocabParallelCrossEntropyBackward", {&logits}, {&loss});
  if (node == nullptr) return loss;
  for (const Tensor& tensor : {softmax, outside, index}) node->save(tensor);
  node->apply = [compiled, type = logits.dtype()](Eager& eager, Node& n, Grads&, Grads& result) {
    if (compiled) {
      const Tensor copy = eager.empty(n.saved[0].sizes(), DType::f32);
      result[0] = eager.empty(n.saved[0].sizes(), type);
      eager.kernel(OpKind::mul, elements_of(copy), 2 * copy.bytes(),
                   2 * copy.bytes() + result[0].bytes());
      return;
    }
    const Tensor places = arange(eager, n.saved[2].elements(), DType::i64);
    const Tensor update = eager.empty({n.saved[2].elements()}, DType::f32);
    eager.kernel(OpKind::mul, elements_of(n.saved[0]), n.saved[0].bytes(), n.saved[0].bytes());
    result[0] = n.saved[0];
  };
  e.finish(*node);
  return loss;
}

}  // namespace headroom::op
