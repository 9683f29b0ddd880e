// Operators of mixtures of experts: grouped products, routing tables, and writes into part of a
// tensor. What runs in place takes no memory: its result is the same storage under a new history.
//
// Sources: ATen/native/cuda/GroupedBlas.cpp, ATen/native/GroupedMMUtils.h (the padded rows),
// torch/csrc/autograd/functions/tensor.cpp (CopySlices), tools/autograd/derivatives.yaml
// (PyTorch 2.13).
#include "operator/functional.h"

namespace headroom::op {

namespace {

// What an operator that writes into `self` returns: the storage without the history so far.
Tensor rebased(Eager& e, const Tensor& self) { return e.detach(self); }

// The kernel wants rows of a multiple of 16 bytes.
Tensor padded_rows(Eager& e, const Dims& sizes, DType dtype) {
  constexpr int64_t kRowAlignment = 16;
  const int64_t elements = kRowAlignment / element_size(dtype);
  Dims padded = sizes;
  padded.back() = (sizes.back() + elements - 1) / elements * elements;
  return e.empty_strided(sizes, contiguous_strides(padded), dtype);
}

double grouped_flops(int64_t rows, int64_t in, int64_t out) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
}

bool is_column_major(const Dims& strides) { return strides[strides.size() - 2] == 1; }

// The rows of each group times a matrix of its own: [rows, in] x [groups, in, out].
Tensor rows_by_matrices(Eager& e, const Tensor& rows, const Tensor& matrices) {
  Tensor out = padded_rows(e, {rows.size(0), matrices.size(2)}, rows.dtype());
  e.kernel(OpKind::grouped_mm, grouped_flops(rows.size(0), matrices.size(1), matrices.size(2)),
           rows.bytes() + matrices.bytes(), out.bytes(), out.dtype());
  return out;
}

// A product for each group over its rows: [in, rows] x [rows, out] gives [groups, in, out].
Tensor products_of_groups(Eager& e, const Tensor& left, const Tensor& right, int64_t groups) {
  Tensor out = padded_rows(e, {groups, left.size(1), right.size(1)}, left.dtype());
  e.kernel(OpKind::grouped_mm, grouped_flops(left.size(0), left.size(1), right.size(1)),
           left.bytes() + right.bytes(), out.bytes(), out.dtype());
  return out;
}

}  // namespace

Tensor grouped_mm(Eager& e, const Tensor& self, const Tensor& mat2, const Tensor& offsets) {
  Tensor out;
  if (!e.recall(OpKind::grouped_mm, {&out})) {
    out = rows_by_matrices(e, self, mat2);
    e.made(OpKind::grouped_mm, {&out});
  }
  if (Node* node = e.history("GroupedMmBackward0", {&self, &mat2}, {&out})) {
    node->save_if(node->needs(1), self);
    node->save_if(node->needs(0), mat2);
    node->save(offsets);
    node->apply = [groups = mat2.size(0), columns = is_column_major(mat2.strides())](
                      Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) {
        // In the layout of the matrices themselves.
        result[1] =
            columns ? transpose(eager, products_of_groups(eager, g[0], n.saved[0], groups), 1, 2)
                    : products_of_groups(eager, n.saved[0], g[0], groups);
      }
      if (n.needs(0)) {
        result[0] = rows_by_matrices(eager, g[0], transpose(eager, n.saved[1], 1, 2));
      }
    };
    e.finish(*node);
  }
  return out;
}

Tensor floor_divide(Eager& e, const Tensor& self, double /*other*/) {
  GradMode no_grad(e, false);
  Tensor out = e.empty_like(self, self.dtype());
  e.kernel(OpKind::floor_divide, static_cast<double>(out.elements()), self.bytes(), out.bytes());
  return out;
}

Tensor histogram(Eager& e, const Tensor& self, int64_t bins) {
  GradMode no_grad(e, false);
  Tensor out = e.empty({bins}, self.dtype());
  e.kernel(OpKind::histogram, static_cast<double>(self.elements()), self.bytes(), out.bytes());
  return out;
}

Tensor nonzero(Eager& e, const Tensor& self, int64_t count) {
  GradMode no_grad(e, false);
  Tensor out = e.empty({count, self.rank()}, DType::i64);
  e.kernel(OpKind::nonzero, static_cast<double>(self.elements()), self.bytes(), out.bytes());
  return out;
}

Tensor index_pairs(Eager& e, const Tensor& self, const Tensor& first, const Tensor& second) {
  Dims sizes = first.sizes();
  for (size_t i = 2; i < self.sizes().size(); ++i) sizes.push_back(self.sizes()[i]);
  Tensor out = e.empty(sizes, self.dtype());
  e.kernel(OpKind::index, 0, out.bytes() + first.bytes() + second.bytes(), out.bytes());
  if (Node* node = e.history("IndexBackward0", {&self}, {&out})) {
    node->save(first);
    node->save(second);
    node->apply = [before = self.sizes()](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = zeros(eager, before, g[0].dtype());
      eager.kernel(OpKind::index_put, static_cast<double>(g[0].elements()), g[0].bytes(),
                   g[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

Tensor index_put(Eager& e, const Tensor& self, const Tensor& index, const Tensor& value) {
  e.kernel(OpKind::index_put, 0, index.bytes() + value.bytes(), value.bytes());
  Tensor out = rebased(e, self);
  if (Node* node = e.history("IndexPutBackward0", {&self, &value}, {&out})) {
    node->save(index);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(0)) result[0] = clone(eager, g[0]);
      if (n.needs(1)) result[1] = op::index(eager, g[0], n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

namespace {

// Into a view: the gradient passes through a copy of the whole that was viewed (CopySlices).
Tensor add_to_view(Eager& e, const Tensor& self, const Tensor& other) {
  const Tensor base = self->base;
  Tensor out = rebased(e, self);
  out->base = base;
  if (Node* node = e.history("CopySlices", {&base, &other}, {&out})) {
    node->apply = [sizes = base.sizes(), strides = base.strides(), part = self.sizes(),
                   part_strides = self.strides()](Eager& eager, Node& n, Grads& g, Grads& result) {
      Tensor whole = eager.empty_strided(sizes, strides, g[0].dtype());
      copy_into(eager, whole, g[0]);
      const Tensor copied = clone(eager, eager.alias(whole, part, part_strides));
      if (n.needs(0)) result[0] = whole;
      if (n.needs(1)) result[1] = copied;
    };
  }
  return out;
}

// What is done to a view in place with a constant: its base's gradient is copied, the part of it
// copied once more, and `gradient` is of that.
Tensor change_view(Eager& e, const Tensor& self, const Tensor& constant,
                   Tensor (*gradient)(Eager&, const Tensor&, const Tensor&)) {
  const Tensor base = self->base;
  Tensor out = rebased(e, self);
  out->base = base;
  if (Node* node = e.history("CopySlices", {&base}, {&out})) {
    node->save(constant);
    node->apply = [gradient, sizes = base.sizes(), strides = base.strides(), part = self.sizes(),
                   part_strides = self.strides()](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor whole = eager.empty_strided(sizes, strides, g[0].dtype());
      copy_into(eager, whole, g[0]);
      const Tensor slice = eager.alias(whole, part, part_strides);
      copy_into(eager, slice, gradient(eager, clone(eager, slice), n.saved[0]));
      result[0] = whole;
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace

Tensor add_assign(Eager& e, const Tensor& self, const Tensor& other) {
  add_inplace(e, self, other);
  if (self->base) return add_to_view(e, self, other);
  Tensor out = rebased(e, self);
  if (Node* node = e.history("AddBackward0", {&self, &other}, {&out})) {
    node->apply = [](Eager&, Node& n, Grads& g, Grads& result) {
      if (n.needs(0)) result[0] = g[0];
      if (n.needs(1)) result[1] = g[0];
    };
  }
  return out;
}

Tensor div_assign(Eager& e, const Tensor& self, const Tensor& other) {
  Tensor out = rebased(e, self);
  if (Node* node = e.history("DivBackward0", {&self, &other}, {&out})) {
    node->save(other);
    // The divisor's gradient needs the dividend, which is about to be overwritten.
    if (node->needs(1)) {
      GradMode no_grad(e, false);
      node->save(clone(e, self));
    }
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) {
        const Tensor once = div(eager, n.saved[1], n.saved[0]);
        const Tensor twice = div(eager, once, n.saved[0]);
        const Tensor negated = neg(eager, g[0]);
        result[1] = mul(eager, negated, twice);
      }
      if (n.needs(0)) result[0] = div(eager, g[0], n.saved[0]);
    };
    e.finish(*node);
  }
  e.kernel(OpKind::div, static_cast<double>(self.elements()), self.bytes() + other.bytes(),
           self.bytes());
  return out;
}

Tensor mul_assign(Eager& e, const Tensor& self, const Tensor& other) {
  e.kernel(OpKind::mul, static_cast<double>(self.elements()), self.bytes() + other.bytes(),
           self.bytes());
  if (self->base) return change_view(e, self, other, mul);
  Tensor out = rebased(e, self);
  if (Node* node = e.history("MulBackward0", {&self}, {&out})) {
    node->save(other);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = mul(eager, g[0], n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor mul_scalar_assign(Eager& e, const Tensor& self, double other) {
  e.kernel(OpKind::mul, static_cast<double>(self.elements()), self.bytes(), self.bytes());
  Tensor out = rebased(e, self);
  if (Node* node = e.history("MulBackward0", {&self}, {&out})) {
    node->apply = [other](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = mul_scalar(eager, g[0], other);
    };
  }
  return out;
}

Tensor div_scalar_assign(Eager& e, const Tensor& self, double other) {
  e.kernel(OpKind::div, static_cast<double>(self.elements()), self.bytes(), self.bytes());
  Tensor out = rebased(e, self);
  if (Node* node = e.history("DivBackward0", {&self}, {&out})) {
    node->apply = [other](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = div_scalar(eager, g[0], other);
    };
  }
  return out;
}

Tensor masked_fill_assign(Eager& e, const Tensor& self, const Tensor& mask) {
  e.kernel(OpKind::masked_fill, 0, self.bytes() + mask.bytes(), self.bytes());
  if (self->base) return change_view(e, self, mask, masked_fill);
  Tensor out = rebased(e, self);
  if (Node* node = e.history("MaskedFillBackward0", {&self}, {&out})) {
    node->save(mask);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = masked_fill(eager, g[0], n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor scatter_assign(Eager& e, const Tensor& self, int dim, const Tensor& index,
                      const Tensor& source) {
  e.kernel(OpKind::scatter, 0, source.bytes() + index.bytes(), source.bytes());
  Tensor out = rebased(e, self);
  if (Node* node = e.history("ScatterBackward0", {&self, &source}, {&out})) {
    node->save(index);
    node->apply = [dim](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(0)) result[0] = scatter(eager, g[0], dim, n.saved[0]);
      if (n.needs(1)) result[1] = gather(eager, g[0], dim, n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor index_add_assign(Eager& e, const Tensor& self, int dim, const Tensor& index,
                        const Tensor& source) {
  e.kernel(OpKind::index_add, static_cast<double>(source.elements()), source.bytes(),
           source.bytes());
  Tensor out = rebased(e, self);
  if (Node* node = e.history("IndexAddBackward0", {&self, &source}, {&out})) {
    node->save(index);
    node->save(source);  // for its sizes alone, and yet the whole of it
    node->apply = [dim](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(0)) result[0] = g[0];
      if (n.needs(1)) {
        result[1] = expand(eager, index_select(eager, g[0], dim, n.saved[0]), n.saved[1].sizes());
      }
    };
    e.finish(*node);
  }
  return out;
}

namespace {

// Writes into the part of `self` that `view` shows. The gradient passes through a copy of the
// whole, of which the part goes on to the source (CopySlices).
template <typename View>
Tensor copy_into_view(Eager& e, const Tensor& self, const Tensor& source, View view) {
  e.kernel(OpKind::copy, 0, source.bytes(), source.bytes());
  Tensor out = rebased(e, self);
  if (Node* node = e.history("CopySlices", {&self, &source}, {&out})) {
    node->apply = [sizes = self.sizes(), strides = self.strides(), dtype = source.dtype(), view](
                      Eager& eager, Node& n, Grads& g, Grads& result) {
      Tensor whole = eager.empty_strided(sizes, strides, g[0].dtype());
      copy_into(eager, whole, g[0]);
      const Tensor part = view(eager, whole);
      const Tensor copied = clone(eager, part);
      const Tensor nothing = n.needs(0) ? zeros_like(eager, copied) : Tensor();
      if (n.needs(0)) result[0] = whole;
      if (n.needs(1)) result[1] = to(eager, copied, dtype);
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace

Tensor copy_slice(Eager& e, const Tensor& self, const Tensor& source, int dim, int64_t start,
                  int64_t end) {
  return copy_into_view(e, self, source, [dim, start, end](Eager& eager, const Tensor& whole) {
    return slice(eager, whole, dim, start, end);
  });
}

Tensor copy_select(Eager& e, const Tensor& self, const Tensor& source, int dim, int64_t index) {
  return copy_into_view(e, self, source, [dim, index](Eager& eager, const Tensor& whole) {
    return select(eager, whole, dim, index);
  });
}

Tensor sparse_mixer(Eager& e, const Tensor& scores, const Tensor& gate, const Tensor& chosen,
                    const Tensor& gates, const Tensor& midpoint) {
  Tensor out;
  {
    GradMode no_grad(e, false);
    out = mul(e, gate, midpoint);
  }
  // Gate and gates are on the graph, too, and get no gradient.
  if (Node* node = e.history("PhimoeMultiplierBackward", {&scores, &gate, &gates}, {&out})) {
    node->save(gate);
    node->save(chosen);
    node->save(gates);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor scaled = mul(eager, g[0], n.saved[0]);
      {
        const Tensor negated = mul_scalar(eager, scaled, -1);
        result[0] = mul(eager, n.saved[2], negated);
      }
      eager.kernel(OpKind::scatter, static_cast<double>(scaled.elements()), scaled.bytes(),
                   scaled.bytes());
    };
    e.finish(*node);
  }
  return out;
}

std::vector<Tensor> max(Eager& e, const Tensor& self, int dim, bool keepdim) {
  const auto at = static_cast<size_t>(dim < 0 ? dim + self.rank() : dim);
  Dims sizes = self.sizes();
  if (keepdim) {
    sizes[at] = 1;
  } else {
    sizes.erase(at);
  }
  std::vector<Tensor> out{e.empty(sizes, self.dtype()), e.empty(sizes, DType::i64)};
  e.kernel(OpKind::max, static_cast<double>(self.elements()), self.bytes(), out[0].bytes());
  if (Node* node = e.history("MaxBackward0", {&self}, {&out[0]})) {
    node->save(out[1]);
    node->apply = [before = self.sizes()](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = zeros(eager, before, g[0].dtype());
      eager.kernel(OpKind::scatter, 0, g[0].bytes(), g[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
