// fms-acceleration's norm, rotary embedding and cross entropy. Source: kernels/unsloth/*.py of its
// plugin fms_acceleration_foak.
#include "operator/fast_kernels.h"

#include <algorithm>

namespace headroom::op {

namespace {

constexpr int64_t kClassesInOneBlock = 65536;

double elements_of(const Tensor& tensor) { return static_cast<double>(tensor.elements()); }

}  // namespace

Tensor fast_rms_norm(Eager& e, const Tensor& input_in, const Tensor& weight) {
  Tensor input;
  Tensor out;
  Tensor rstd;
  {
    GradMode no_grad(e, false);
    const int64_t width = input_in.size(-1);
    input = view(e, input_in, {-1, width});
    const Tensor rows = e.empty(input.sizes(), input.dtype());
    rstd = e.empty({input.size(0)}, DType::f32);
    out = view(e, rows, input_in.sizes());
  }
  e.kernel(OpKind::fast_rms_norm, 4 * elements_of(input), input.bytes(), out.bytes());
  if (Node* node = e.history("Fast_RMS_LayernormBackward", {&input_in, &weight}, {&out})) {
    for (const Tensor& tensor : {input, weight, rstd}) node->save(tensor);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor rows = reshape(eager, g[0], n.saved[0].sizes());
      eager.kernel(OpKind::fast_rms_norm, 8 * elements_of(rows), 2 * rows.bytes(), rows.bytes());
      result[0] = view(eager, rows, g[0].sizes());
    };
    e.finish(*node);
  }
  return out;
}

Tensor fast_rotary(Eager& e, const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor out;
  {
    GradMode no_grad(e, false);
    const Tensor rows = view(e, x, {x.size(0) * x.size(1), -1});
    out = view(e, rows, x.sizes());
  }
  e.kernel(OpKind::fast_rotary, 3 * elements_of(x), x.bytes(), x.bytes());
  if (Node* node = e.history("Fast_RoPE_EmbeddingBackward", {&x}, {&out})) {
    // Kept as attributes of the context: no hook sees them, and they go with the graph.
    node->apply = [cos, sin](Eager& eager, Node&, Grads& g, Grads& result) {
      const Tensor rows = reshape(eager, g[0], {g[0].size(0) * g[0].size(1), -1});
      eager.kernel(OpKind::fast_rotary, 3 * elements_of(rows), rows.bytes(), rows.bytes());
      result[0] = view(eager, rows, g[0].sizes());
    };
    e.finish(*node);
  }
  return out;
}

namespace {

Tensor row_losses(Eager& e, const Tensor& logits, const Tensor& target) {
  const int64_t rows = logits.size(0);
  const int64_t blocks = (logits.size(1) + kClassesInOneBlock - 1) / kClassesInOneBlock;
  Tensor losses = e.empty({rows}, DType::f32);
  Tensor sums = blocks > 1 ? e.empty({rows, blocks}, DType::f32) : e.empty({rows}, DType::f32);
  e.kernel(OpKind::fast_cross_entropy, 4 * elements_of(logits), logits.bytes(), losses.bytes());
  if (blocks > 1) {
    // logsumexp over the blocks: maxima, differences (raised in place), their sum.
    GradMode no_grad(e, false);
    Tensor total;
    {
      const Tensor maxima = e.empty({rows, 1}, DType::f32);
      const Tensor powers = sub(e, sums, maxima);
      const int last[] = {1};
      total = sum(e, powers, last, false);
    }
    sums = total;
    compare(e, target, nullptr);
  }
  if (Node* node = e.history("Fast_CrossEntropyLossBackward", {&logits}, {&losses})) {
    for (const Tensor& tensor : {logits, sums, target}) node->save(tensor);
    node->apply = [](Eager& eager, Node& n, Grads&, Grads& result) {
      const Tensor& kept = n.saved[0];
      eager.kernel(OpKind::fast_cross_entropy, 4 * elements_of(kept), kept.bytes(), kept.bytes());
      result[0] = detach(eager, kept);
    };
    e.finish(*node);
  }
  return losses;
}

}  // namespace

Tensor fast_cross_entropy(Eager& e, const Tensor& logits, const Tensor& target) {
  const Tensor losses = row_losses(e, logits, target);
  const Tensor count = sum(e, compare(e, target, nullptr), {}, false);
  const Tensor total = sum(e, losses, {}, false);
  return div(e, total, count);
}

}  // namespace headroom::op
