#include "operator/parallel_sequence.h"

#include "operator/functional.h"

namespace headroom::op {

Tensor gathered_sequence(Eager& e, const Tensor& part, int64_t ranks) {
  const GradMode no_grad(e, false);
  const Tensor own = contiguous(e, part);
  Dims sizes = part.sizes();
  const bool is_one_batch = sizes[0] == 1;  // whose parts lie as they come
  sizes[is_one_batch ? 1 : 0] *= ranks;
  Tensor rows = e.empty(sizes, part.dtype());
  e.collective(OpKind::all_gather, own.bytes(), rows.bytes());
  if (is_one_batch) return rows;
  sizes = part.sizes();
  sizes[1] *= ranks;
  Tensor whole = e.empty(sizes, part.dtype());
  e.kernel(OpKind::cat, 0, rows.bytes(), whole.bytes());
  return whole;
}

Tensor scattered_sequence(Eager& e, const Tensor& whole, int64_t ranks) {
  const GradMode no_grad(e, false);
  Dims sizes = whole.sizes();
  require(sizes[1] % ranks == 0, "a sequence that its ranks do not divide");
  sizes[1] /= ranks;
  const Tensor rows = clone_contiguous(e, whole);
  Tensor part = e.empty(sizes, whole.dtype());
  e.collective(OpKind::reduce_scatter, rows.bytes(), part.bytes());
  return part;
}

namespace {

// torchao/float8/float8_tensor_parallel.py
Tensor gathered(Eager& e, const Tensor& part, int64_t ranks, Gathers how) {
  if (how == Gathers::as_it_is) return gathered_sequence(e, part, ranks);
  Tensor whole = gathered_sequence(e, cast_to_float8(e, part), ranks);
  whole->dtype = part.dtype();
  return whole;
}

}  // namespace

Tensor parallel_gather_sequence(Eager& e, const Tensor& self, int64_t ranks, Gathers how) {
  Tensor out = gathered(e, self, ranks, how);
  if (Node* node = e.history("RedistributeBackward", {&self}, {&out})) {
    node->apply = [ranks](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = scattered_sequence(eager, g[0], ranks);
    };
  }
  return out;
}

Tensor parallel_scatter_sequence(Eager& e, const Tensor& self, int64_t ranks, Gathers how) {
  Tensor out = scattered_sequence(e, self, ranks);
  if (Node* node = e.history("RedistributeBackward", {&self}, {&out})) {
    node->apply = [ranks, how](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = gathered(eager, g[0], ranks, how);
    };
  }
  return out;
}

}  // namespace headroom::op
