// What a tensor-parallel rank does around its own part of a module, as PyTorch's DTensor does it:
// a collective takes a copy of what it reduces (functional collectives leave their input alone),
// gathered parts come rank by rank and are put side by side by one more copy.
//
// Source: torch/distributed/tensor (_api.py, _redistribute.py, placement_types.py), and
// torch/csrc/distributed/c10d/Functional.cpp (PyTorch 2.13).
#include "operator/functional.h"
#include "operator/parallel_sequence.h"

namespace headroom::op {

namespace {

Tensor same(Eager& e, const Tensor& self) { return e.alias(self, self.sizes(), self.strides()); }

Tensor summed(Eager& e, const Tensor& self) {
  const GradMode no_grad(e, false);
  Tensor out = clone_contiguous(e, self);
  e.collective(OpKind::all_reduce, out.bytes(), out.bytes());
  return out;
}

// A copy of the first `size` of the last dimension.
Tensor cut(Eager& e, const Tensor& self, int64_t size) {
  const GradMode no_grad(e, false);
  Dims sizes = self.sizes();
  sizes.back() = size;
  return clone_contiguous(e, e.alias(self, sizes, self.strides()));
}

// The parts of the last dimension, each of the size of the first rank's, which is the largest.
Tensor gathered(Eager& e, const Tensor& self, int64_t ranks, int64_t size) {
  const GradMode no_grad(e, false);
  Dims sizes = self.sizes();
  sizes[0] *= ranks;
  const Tensor own = contiguous(e, self);
  Tensor rows = e.empty(sizes, self.dtype());
  e.collective(OpKind::all_gather, own.bytes(), rows.bytes());
  sizes = self.sizes();
  sizes.back() *= ranks;
  const Tensor whole = e.empty(sizes, self.dtype());
  e.kernel(OpKind::cat, 0, rows.bytes(), whole.bytes());
  rows = Tensor();
  // What fills the last rank's part up goes by one more copy.
  return sizes.back() == size ? whole : cut(e, whole, size);
}

}  // namespace

Tensor parallel_input(Eager& e, const Tensor& self) {
  Tensor out = same(e, self);
  if (Node* node = e.history("_FromTorchTensorBackward", {&self}, {&out})) {
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = summed(eager, g[0]);
    };
  }
  return out;
}

Tensor parallel_weight(Eager& e, const Tensor& self) {
  Tensor out = same(e, self);
  if (Node* node = e.history("_AllReduceGradient", {&self}, {&out})) {
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      eager.collective(OpKind::all_reduce, g[0].bytes(), g[0].bytes());
      result[0] = std::move(g[0]);
    };
  }
  return out;
}

Tensor parallel_bias(Eager& e, const Tensor& self) {
  Tensor out;
  {
    const GradMode no_grad(e, false);
    out = div_scalar(e, self, 2);
  }
  if (Node* node = e.history("RedistributeBackward", {&self}, {&out})) {
    node->apply = [](Eager&, Node&, Grads& g, Grads& result) { result[0] = std::move(g[0]); };
  }
  return out;
}

Tensor parallel_sum(Eager& e, const Tensor& self) {
  // Without gradients, as in a reentrant checkpoint's first run, modules do without DTensors.
  if (!e.grad_enabled()) {
    e.collective(OpKind::all_reduce, self.bytes(), self.bytes());
    return self;
  }
  Tensor out = summed(e, self);
  if (Node* node = e.history("RedistributeBackward", {&self}, {&out})) {
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = same(eager, g[0]);
    };
  }
  return out;
}

Tensor parallel_reduce(Eager& e, const Tensor& self) {
  Tensor out = same(e, self);
  e.collective(OpKind::all_reduce, self.bytes(), self.bytes());
  if (Node* node = e.history("_ReduceInputBackward", {&self}, {&out})) {
    node->apply = [](Eager&, Node&, Grads& g, Grads& result) { result[0] = std::move(g[0]); };
  }
  return out;
}

Tensor parallel_gather(Eager& e, const Tensor& self, int64_t ranks, int64_t size) {
  Tensor out = gathered(e, self, ranks, size);
  if (Node* node = e.history("RedistributeBackward", {&self}, {&out})) {
    node->apply = [own = self.size(-1)](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = cut(eager, g[0], own);
    };
  }
  return out;
}

Tensor parallel_split(Eager& e, const Tensor& self, int64_t ranks) {
  const int64_t whole = self.size(-1);
  Tensor out = cut(e, self, (whole + ranks - 1) / ranks);
  if (Node* node = e.history("RedistributeBackward", {&self}, {&out})) {
    node->apply = [ranks, whole](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = gathered(eager, g[0], ranks, whole);
    };
  }
  return out;
}

// The look-up is of this rank's rows; a row that is another's comes out as zeros. PyTorch's rule
// for its gradient knows no part of the rows: each rank makes the gradient of the whole embedding,
// and keeps it beside its part of the weight (embedding_dense_backward_strategy).
Tensor parallel_embedding(Eager& e, const Tensor& weight, const Tensor& indices,
                          const EmbeddingRows& rows) {
  Dims sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  Tensor part;
  {
    const GradMode no_grad(e, false);
    Tensor below = compare(e, indices, nullptr);
    Tensor above = compare(e, indices, nullptr);
    const Tensor mask = compare(e, below, &above);
    below = above = Tensor();
    Tensor copy = clone(e, indices);
    const Tensor own = add_scalar(e, copy, 0);
    copy = Tensor();
    e.kernel(OpKind::masked_fill, 0, mask.bytes(), own.bytes());
    part = e.empty(sizes, weight.dtype());
    e.kernel(OpKind::embedding, 0, part.bytes() + own.bytes(), part.bytes());
    e.kernel(OpKind::masked_fill, 0, mask.bytes(), part.bytes());
  }
  const bool is_scattered = rows.sequence_ranks > 1;
  Tensor out = is_scattered ? scattered_sequence(e, part, rows.sequence_ranks) : summed(e, part);
  if (Node* node = e.history("EmbeddingBackward0", {&weight}, {&out})) {
    node->save(indices);
    node->apply = [rows, is_scattered, own = weight.sizes()](Eager& eager, Node& n, Grads& g,
                                                             Grads& result) {
      if (is_scattered) g[0] = gathered_sequence(eager, g[0], rows.sequence_ranks);
      Tensor whole = embedding_gradient(eager, g[0], n.saved[0], {rows.rows, own[1]});
      g[0] = Tensor();
      if (rows.gradient != RowsGradient::whole) {
        Tensor own_part = clone_contiguous(eager, eager.alias(whole, own, whole.strides()));
        if (rows.gradient == RowsGradient::cut) {
          result[0] = std::move(own_part);
          return;
        }
        whole->base = std::move(own_part);  // both go when they have been added
      }
      whole->sizes = own;  // of the rank's rows, in a block of all
      result[0] = std::move(whole);
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
