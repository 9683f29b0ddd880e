// Operators that move data: copies, casts, concatenation, filling.
#include <algorithm>

#include "operator/functional.h"

namespace headroom::op {

namespace {

Tensor copied(Eager& e, const Tensor& self, Tensor out) {
  KernelWork work{.kind = self.dtype() == out.dtype() ? OpKind::clone : OpKind::cast,
                  .bytes_read = self.bytes(),
                  .bytes_written = out.bytes()};
  work.permuted = permuted_into(self, out);
  e.kernel(work);
  return out;
}

Tensor with_clone_history(Eager& e, const Tensor& self, Tensor out) {
  if (Node* node = e.history("CloneBackward0", {&self}, {&out})) {
    node->apply = [](Eager&, Node&, Grads& g, Grads& result) { result[0] = g[0]; };
  }
  return out;
}

}  // namespace

Tensor clone(Eager& e, const Tensor& self) {
  return with_clone_history(e, self, copied(e, self, e.empty_like(self, self.dtype())));
}

Tensor clone_contiguous(Eager& e, const Tensor& self) {
  return with_clone_history(e, self, copied(e, self, e.empty(self.sizes(), self.dtype())));
}

Tensor to(Eager& e, const Tensor& self, DType dtype) {
  if (self.dtype() == dtype) return self;
  Tensor out = copied(e, self, e.empty_like(self, dtype));
  if (!is_floating(dtype)) return out;
  if (Node* node = e.history("ToCopyBackward0", {&self}, {&out})) {
    node->apply = [before = self.dtype()](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = to(eager, g[0], before);
    };
  }
  return out;
}

Tensor to_contiguous(Eager& e, const Tensor& self, DType dtype) {
  // Any layout that does not read as channels last counts as contiguous (to_will_alias).
  if (self.dtype() == dtype && !is_like_channels_last(self.sizes(), self.strides())) return self;
  Tensor out = copied(e, self, e.empty(self.sizes(), dtype));
  if (Node* node = e.history("ToCopyBackward0", {&self}, {&out})) {
    node->apply = [before = self.dtype()](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = to(eager, g[0], before);
    };
  }
  return out;
}

void copy_into(Eager& e, const Tensor& destination, const Tensor& source) {
  e.kernel(OpKind::copy, 0, source.bytes(), destination.bytes());
}

Tensor full(Eager& e, const Dims& sizes, DType dtype) {
  Tensor out = e.empty(sizes, dtype);
  e.kernel(OpKind::fill, 0, 0, out.bytes());
  return out;
}

Tensor zeros(Eager& e, const Dims& sizes, DType dtype) { return full(e, sizes, dtype); }

Tensor zeros_like(Eager& e, const Tensor& self) {
  Tensor out = e.empty_like(self, self.dtype());
  e.kernel(OpKind::fill, 0, 0, out.bytes());
  return out;
}

Tensor arange(Eager& e, int64_t count, DType dtype) {
  Tensor out = e.empty({count}, dtype);
  e.kernel(OpKind::arange, 0, 0, out.bytes());
  return out;
}

Tensor cat(Eager& e, std::span<const Tensor> tensors, int dim) {
  require(!tensors.empty(), "cat of nothing");
  const auto at = static_cast<size_t>(dim < 0 ? dim + tensors[0].rank() : dim);
  Dims sizes = tensors[0].sizes();
  DType dtype = tensors[0].dtype();
  std::vector<int64_t> lengths;
  sizes[at] = 0;
  for (const Tensor& tensor : tensors) {
    require(tensor.rank() == tensors[0].rank(), "cat of tensors of different ranks");
    lengths.push_back(tensor.sizes()[at]);
    sizes[at] += lengths.back();
    dtype = promote(dtype, tensor.dtype());
  }
  // Parts that all read as images with their channels last give another (TensorShape.cpp).
  const bool channels_last = std::ranges::all_of(tensors, [](const Tensor& tensor) {
    return is_like_channels_last(tensor.sizes(), tensor.strides());
  });
  Tensor out = channels_last ? e.empty_strided(sizes, channels_last_strides(sizes), dtype)
                             : e.empty(sizes, dtype);
  e.kernel(OpKind::cat, 0, out.bytes(), out.bytes());
  Tensor outputs[] = {out};
  if (Node* node = e.history("CatBackward0", tensors, std::span<Tensor>(outputs))) {
    node->apply = [lengths, at](Eager& eager, Node& n, Grads& g, Grads& result) {
      int64_t start = 0;
      for (size_t i = 0; i < lengths.size(); ++i) {
        if (n.needs(i)) {
          result[i] = slice(eager, g[0], static_cast<int>(at), start, start + lengths[i]);
        }
        start += lengths[i];
      }
    };
  }
  return out;
}

Tensor stack(Eager& e, std::span<const Tensor> tensors, int dim) {
  require(!tensors.empty(), "stack of nothing");
  const int rank = tensors[0].rank() + 1;
  const int at = dim < 0 ? dim + rank : dim;
  Dims sizes = tensors[0].sizes();
  sizes.insert(static_cast<size_t>(at), static_cast<int64_t>(tensors.size()));
  Tensor out = e.empty(sizes, tensors[0].dtype());
  e.kernel(OpKind::stack, 0, out.bytes(), out.bytes());
  Tensor outputs[] = {out};
  if (Node* node = e.history("StackBackward0", tensors, std::span<Tensor>(outputs))) {
    node->apply = [at](Eager& eager, Node& n, Grads& g, Grads& result) {
      for (size_t i = 0; i < n.next.size(); ++i) {
        if (n.needs(i)) result[i] = select(eager, g[0], at, static_cast<int64_t>(i));
      }
    };
  }
  return out;
}

// Constant padding of the last dimensions, two numbers each, last dimension first.
Tensor pad(Eager& e, const Tensor& self, std::span<const int64_t> padding) {
  Dims sizes = self.sizes();
  for (size_t i = 0; i + 1 < padding.size(); i += 2) {
    sizes[sizes.size() - 1 - i / 2] += padding[i] + padding[i + 1];
  }
  // Nothing is added: a copy of what is left, in its layout (constant_pad_nd).
  const bool only_cuts = std::ranges::all_of(padding, [](int64_t amount) { return amount <= 0; });
  Tensor out = only_cuts ? e.empty_like(e.alias(self, sizes, self.strides()), self.dtype())
                         : e.empty(sizes, self.dtype());
  e.kernel(OpKind::pad, 0, self.bytes(), out.bytes());
  if (Node* node = e.history("ConstantPadNdBackward0", {&self}, {&out})) {
    std::vector<int64_t> undo(padding.begin(), padding.end());
    for (int64_t& amount : undo) amount = -amount;
    node->apply = [undo](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = pad(eager, g[0], undo);
    };
  }
  return out;
}

Tensor repeat(Eager& e, const Tensor& self, const Dims& repeats) {
  Dims sizes = repeats;
  const size_t lead = repeats.size() - self.sizes().size();
  for (size_t i = lead; i < sizes.size(); ++i) sizes[i] *= self.sizes()[i - lead];
  Tensor out = e.empty(sizes, self.dtype());
  e.kernel(OpKind::repeat, 0, self.bytes(), out.bytes());
  if (Node* node = e.history("RepeatBackward0", {&self}, {&out})) {
    node->apply = [before = self.sizes()](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = eager.empty(before, g[0].dtype());
      eager.kernel(OpKind::sum, static_cast<double>(g[0].elements()), g[0].bytes(),
                   result[0].bytes());
    };
  }
  return out;
}

Tensor triangle(Eager& e, const Tensor& self) {
  Tensor out = e.empty_like(self, self.dtype());
  e.kernel(OpKind::triangle, 0, self.bytes(), out.bytes());
  if (Node* node = e.history("TriuBackward0", {&self}, {&out})) {
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = triangle(eager, g[0]);
    };
  }
  return out;
}

}  // namespace headroom::op
