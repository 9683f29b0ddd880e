// Look-ups by index: embedding, gather, top-k, sort and the routing of experts.
#include "operator/functional.h"
#include "operator/scratch.h"

namespace headroom::op {

namespace {

Tensor looked_up(Eager& e, OpKind kind, const Dims& sizes, DType dtype, const Tensor& index) {
  Tensor out = e.empty(sizes, dtype);
  e.kernel(kind, 0, out.bytes() + index.bytes(), out.bytes());
  return out;
}

// The gradient of an indexed tensor (index_put with accumulation into zeros).
Tensor put_rows(Eager& e, const Tensor& grad, const Tensor& indices, const Dims& sizes) {
  Tensor out = zeros(e, sizes, grad.dtype());
  const IndexPutScratch scratch = index_put_scratch(indices.elements());
  const Tensor linear = e.scratch(scratch.index_bytes);
  const Tensor sorted = e.scratch(scratch.index_bytes);
  const Tensor origins = e.scratch(scratch.index_bytes);
  const Tensor range = e.scratch(scratch.index_bytes);
  const Tensor sort_storage = e.scratch(scratch.sort_bytes);
  e.kernel(OpKind::index_put, static_cast<double>(grad.elements()), grad.bytes(), grad.bytes());
  return out;
}

}  // namespace

Tensor embedding_gradient(Eager& e, const Tensor& grad, const Tensor& indices, const Dims& sizes) {
  // The kernel's own copy where the gradient is not contiguous (ATen/native/cuda/Embedding.cu).
  const Tensor copy =
      e.scratch(grad.is_contiguous() ? 0 : grad.elements() * element_size(grad.dtype()));
  const auto scratch = embedding_backward_scratch(e.environment(), indices.elements(), sizes[0],
                                                  sizes[1], grad.dtype());
  const Tensor sorted = e.scratch(scratch.index_bytes);
  const Tensor origins = e.scratch(scratch.index_bytes);
  if (scratch.sorts) {
    const Tensor range = e.scratch(scratch.index_bytes);
    const Tensor sort_storage = e.scratch(scratch.sort_bytes);
  }
  Tensor out = zeros(e, sizes, grad.dtype());
  const Tensor segments = e.scratch(scratch.index_bytes);
  const Tensor part_counts = e.scratch(scratch.segment_bytes);
  const Tensor part_starts = e.scratch(scratch.segment_bytes);
  const Tensor parts = e.scratch(scratch.partial_bytes);
  const Tensor part_rows = e.scratch(scratch.partial_rows_bytes);
  e.kernel(OpKind::embedding, static_cast<double>(grad.elements()), grad.bytes() + indices.bytes(),
           out.bytes());
  return out;
}

Tensor embedding(Eager& e, const Tensor& weight, const Tensor& indices) {
  Dims sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  Tensor out = looked_up(e, OpKind::embedding, sizes, weight.dtype(), indices);
  if (Node* node = e.history("EmbeddingBackward0", {&weight}, {&out})) {
    node->save(indices);
    node->apply = [rows = weight.sizes()](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = embedding_gradient(eager, g[0], n.saved[0], rows);
    };
    e.finish(*node);
  }
  return out;
}

Tensor index_select(Eager& e, const Tensor& self, int dim, const Tensor& index) {
  Dims sizes = self.sizes();
  sizes[static_cast<size_t>(dim < 0 ? dim + self.rank() : dim)] = index.elements();
  Tensor out = looked_up(e, OpKind::index_select, sizes, self.dtype(), index);
  if (Node* node = e.history("IndexSelectBackward0", {&self}, {&out})) {
    node->save(index);
    node->apply = [before = self.sizes(), dim](Eager& eager, Node& n, Grads& g, Grads& result) {
      Tensor whole = zeros(eager, before, g[0].dtype());
      eager.kernel(OpKind::index_add, static_cast<double>(g[0].elements()), g[0].bytes(),
                   g[0].bytes());
      static_cast<void>(dim);
      static_cast<void>(n);
      result[0] = whole;
    };
    e.finish(*node);
  }
  return out;
}

Tensor index(Eager& e, const Tensor& self, const Tensor& index, int dim) {
  const auto at = static_cast<size_t>(dim);
  Dims sizes;
  for (size_t i = 0; i < at; ++i) sizes.push_back(self.sizes()[i]);
  for (const int64_t size : index.sizes()) sizes.push_back(size);
  for (size_t i = at + 1; i < self.sizes().size(); ++i) sizes.push_back(self.sizes()[i]);
  Tensor out = looked_up(e, OpKind::index, sizes, self.dtype(), index);
  if (Node* node = e.history("IndexBackward0", {&self}, {&out})) {
    node->save(index);
    node->apply = [before = self.sizes()](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = put_rows(eager, g[0], n.saved[0], before);
    };
    e.finish(*node);
  }
  return out;
}

Tensor index_add(Eager& e, const Tensor& self, int dim, const Tensor& index, const Tensor& source) {
  Tensor out = clone(e, self);
  e.kernel(OpKind::index_add, static_cast<double>(source.elements()), source.bytes(),
           source.bytes());
  if (Node* node = e.history("IndexAddBackward0", {&self, &source}, {&out})) {
    node->save(index);
    node->save(source);
    node->apply = [dim](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(0)) result[0] = g[0];
      if (n.needs(1)) result[1] = index_select(eager, g[0], dim, n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor scatter(Eager& e, const Tensor& self, int dim, const Tensor& index) {
  Tensor out = e.empty_like(self, self.dtype());
  e.kernel(OpKind::scatter, 0, self.bytes() + index.bytes(), out.bytes());
  if (Node* node = e.history("ScatterBackward1", {&self}, {&out})) {
    node->save(index);
    node->apply = [dim](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = scatter(eager, g[0], dim, n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor gather(Eager& e, const Tensor& self, int dim, const Tensor& index) {
  Tensor out = looked_up(e, OpKind::gather, index.sizes(), self.dtype(), index);
  if (Node* node = e.history("GatherBackward0", {&self}, {&out})) {
    node->save(self);  // for its size alone
    node->save(index);
    node->apply = [before = self.sizes(), dim](Eager& eager, Node&, Grads& g, Grads& result) {
      static_cast<void>(dim);
      result[0] = zeros(eager, before, g[0].dtype());
      eager.kernel(OpKind::scatter, static_cast<double>(g[0].elements()), g[0].bytes(),
                   g[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

namespace {

// Values and indices, with the backward that both sort and topk have: a scatter into zeros.
std::vector<Tensor> ordered(Eager& e, OpKind kind, const char* name, const Tensor& self,
                            const Dims& sizes) {
  std::vector<Tensor> out{e.empty(sizes, self.dtype()), e.empty(sizes, DType::i64)};
  e.kernel(kind, static_cast<double>(self.elements()), self.bytes(),
           out[0].bytes() + out[1].bytes());
  if (Node* node = e.history(name, {&self}, {&out[0]})) {
    node->save(out[1]);
    node->apply = [before = self.sizes()](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = zeros(eager, before, g[0].dtype());
      eager.kernel(OpKind::scatter, 0, g[0].bytes(), g[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace

std::vector<Tensor> topk(Eager& e, const Tensor& self, int64_t k) {
  Dims sizes = self.sizes();
  sizes.back() = k;
  return ordered(e, OpKind::topk, "TopkBackward0", self, sizes);
}

std::vector<Tensor> sort(Eager& e, const Tensor& self) {
  return ordered(e, OpKind::sort, "SortBackward0", self, self.sizes());
}

Tensor one_hot(Eager& e, const Tensor& self, int64_t classes) {
  Dims sizes = self.sizes();
  sizes.push_back(classes);
  return looked_up(e, OpKind::one_hot, sizes, DType::i64, self);
}

}  // namespace headroom::op
