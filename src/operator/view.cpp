// Views: other sizes and strides over the same storage. Forward takes no memory; backward of a view
// that shows a part (slice, select, split) pads the gradient back to the whole.
#include <algorithm>

#include "operator/functional.h"

namespace headroom::op {

namespace {

size_t wrap(int dim, const Tensor& self) {
  const int wrapped = dim < 0 ? dim + self.rank() : dim;
  require(wrapped >= 0 && wrapped < self.rank(), "dimension out of range");
  return static_cast<size_t>(wrapped);
}

// Strides under which `self` shows `sizes` without a copy, if there are any
// (at::detail::computeStride).
std::optional<Dims> view_strides(const Tensor& self, const Dims& sizes) {
  if (self.elements() == 0) return contiguous_strides(sizes);
  Dims strides = sizes;
  const Dims& old_sizes = self.sizes();
  const Dims& old_strides = self.strides();
  if (old_sizes.empty()) {
    for (int64_t& stride : strides) stride = 1;
    return strides;
  }
  auto view_dim = static_cast<int>(sizes.size()) - 1;
  int64_t chunk_base_stride = old_strides.back();
  int64_t tensor_elements = 1;
  int64_t view_elements = 1;
  for (int dim = self.rank() - 1; dim >= 0; --dim) {
    const auto d = static_cast<size_t>(dim);
    tensor_elements *= old_sizes[d];
    const bool chunk_ends = dim == 0 || (old_sizes[d - 1] != 1 &&
                                         old_strides[d - 1] != tensor_elements * chunk_base_stride);
    if (!chunk_ends) continue;
    while (view_dim >= 0 &&
           (view_elements < tensor_elements || sizes[static_cast<size_t>(view_dim)] == 1)) {
      strides[static_cast<size_t>(view_dim)] = view_elements * chunk_base_stride;
      view_elements *= sizes[static_cast<size_t>(view_dim)];
      --view_dim;
    }
    if (view_elements != tensor_elements) return std::nullopt;
    if (dim > 0) {
      chunk_base_stride = old_strides[d - 1];
      tensor_elements = 1;
      view_elements = 1;
    }
  }
  if (view_dim != -1) return std::nullopt;
  return strides;
}

// Replaces one -1 by what the element count leaves for it.
Dims infer_sizes(const Dims& sizes, int64_t elements) {
  Dims inferred = sizes;
  int64_t known = 1;
  for (const int64_t size : sizes) known *= size == -1 ? 1 : size;
  for (int64_t& size : inferred) {
    if (size == -1) size = known == 0 ? 0 : elements / known;
  }
  require(product(inferred) == elements, "view of another number of elements");
  return inferred;
}

template <typename Apply>
Tensor finish_view(Eager& e, const char* name, const Tensor& self, Tensor out, Apply apply) {
  if (Node* node = e.history(name, {&self}, {&out})) node->apply = std::move(apply);
  return out;
}

}  // namespace

Tensor view(Eager& e, const Tensor& self, const Dims& requested) {
  const Dims sizes = infer_sizes(requested, self.elements());
  const auto strides = view_strides(self, sizes);
  require(strides.has_value(), "view of a layout that needs a copy");
  return finish_view(e, "ViewBackward0", self, e.alias(self, sizes, *strides),
                     [before = self.sizes()](Eager& eager, Node&, Grads& g, Grads& out) {
                       // Nothing comes of a weight whose kernel has no gradient for it.
                       if (g[0]) out[0] = reshape(eager, g[0], before);
                     });
}

Tensor reshape(Eager& e, const Tensor& self, const Dims& requested) {
  const Dims sizes = infer_sizes(requested, self.elements());
  if (view_strides(self, sizes)) return view(e, self, sizes);
  // _unsafe_view: nobody else has the copy, so it is no view of it.
  Tensor out = view(e, clone_contiguous(e, self), sizes);
  out->base = Tensor();
  return out;
}

Tensor transpose(Eager& e, const Tensor& self, int dim0, int dim1) {
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  const size_t a = wrap(dim0, self);
  const size_t b = wrap(dim1, self);
  std::swap(sizes[a], sizes[b]);
  std::swap(strides[a], strides[b]);
  return finish_view(e, "TransposeBackward0", self, e.alias(self, sizes, strides),
                     [dim0, dim1](Eager& eager, Node&, Grads& g, Grads& out) {
                       out[0] = transpose(eager, g[0], dim0, dim1);
                     });
}

Tensor t(Eager& e, const Tensor& self) {
  return self.rank() < 2 ? e.alias(self, self.sizes(), self.strides()) : transpose(e, self, 0, 1);
}

Tensor permute(Eager& e, const Tensor& self, const Dims& order) {
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  Dims inverse = order;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t from = wrap(static_cast<int>(order[i]), self);
    sizes[i] = self.sizes()[from];
    strides[i] = self.strides()[from];
    inverse[from] = static_cast<int64_t>(i);
  }
  return finish_view(e, "PermuteBackward0", self, e.alias(self, sizes, strides),
                     [inverse](Eager& eager, Node&, Grads& g, Grads& out) {
                       out[0] = permute(eager, g[0], inverse);
                     });
}

Tensor expand(Eager& e, const Tensor& self, const Dims& requested) {
  Dims sizes = requested;
  Dims strides = requested;
  require(sizes.size() >= self.sizes().size(), "expand to fewer dimensions");
  const size_t lead = sizes.size() - self.sizes().size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i < lead) {
      strides[i] = 0;
      continue;
    }
    const int64_t size = self.sizes()[i - lead];
    if (sizes[i] == -1) sizes[i] = size;
    require(size == 1 || size == sizes[i], "expand of a dimension that is not one");
    strides[i] = size == 1 && sizes[i] != 1 ? 0 : self.strides()[i - lead];
  }
  return finish_view(e, "ExpandBackward0", self, e.alias(self, sizes, strides),
                     [before = self.sizes()](Eager& eager, Node&, Grads& g, Grads& out) {
                       out[0] = sum_to(eager, g[0], before);
                     });
}

Tensor unsqueeze(Eager& e, const Tensor& self, int dim) {
  const int rank = self.rank();
  const auto at = static_cast<size_t>(dim < 0 ? dim + rank + 1 : dim);
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  const int64_t stride = at < sizes.size() ? sizes[at] * strides[at] : 1;
  sizes.insert(at, 1);
  strides.insert(at, stride);
  return finish_view(e, "UnsqueezeBackward0", self, e.alias(self, sizes, strides),
                     [at](Eager& eager, Node&, Grads& g, Grads& out) {
                       out[0] = squeeze(eager, g[0], static_cast<int>(at));
                     });
}

Tensor squeeze(Eager& e, const Tensor& self, int dim) {
  const size_t at = wrap(dim, self);
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  const bool squeezed = sizes[at] == 1;
  if (squeezed) {
    sizes.erase(at);
    strides.erase(at);
  }
  return finish_view(e, "SqueezeBackward1", self, e.alias(self, sizes, strides),
                     [at, squeezed](Eager& eager, Node&, Grads& g, Grads& out) {
                       out[0] = squeezed ? unsqueeze(eager, g[0], static_cast<int>(at)) : g[0];
                     });
}

Tensor slice(Eager& e, const Tensor& self, int dim, int64_t start, int64_t end, int64_t step) {
  const size_t at = wrap(dim, self);
  require(step > 0, "slice by a step that is not positive");
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  const int64_t size = sizes[at];
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, size);
  end = std::clamp<int64_t>(end, start, size);
  sizes[at] = (end - start + step - 1) / step;
  strides[at] *= step;
  return finish_view(
      e, "SliceBackward0", self, e.alias(self, sizes, strides),
      [before = self.sizes(), dim, start, end, step](Eager& eager, Node&, Grads& g, Grads& out) {
        Tensor whole = zeros(eager, before, g[0].dtype());
        copy_into(eager, slice(eager, whole, dim, start, end, step), g[0]);
        out[0] = whole;
      });
}

Tensor select(Eager& e, const Tensor& self, int dim, int64_t index) {
  const size_t at = wrap(dim, self);
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  sizes.erase(at);
  strides.erase(at);
  return finish_view(
      e, "SelectBackward0", self, e.alias(self, sizes, strides),
      [before = self.sizes(), dim, index](Eager& eager, Node&, Grads& g, Grads& out) {
        Tensor whole = zeros(eager, before, g[0].dtype());
        copy_into(eager, select(eager, whole, dim, index), g[0]);
        out[0] = whole;
      });
}

std::vector<Tensor> split(Eager& e, const Tensor& self, std::span<const int64_t> sizes, int dim) {
  const size_t at = wrap(dim, self);
  std::vector<Tensor> parts;
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  require(total == self.sizes()[at], "split into parts that are not the whole");
  for (const int64_t size : sizes) {
    Dims part = self.sizes();
    part[at] = size;
    parts.push_back(e.alias(self, part, self.strides()));
  }
  const Tensor inputs[] = {self};
  if (Node* node = e.history("SplitBackward0", std::span<const Tensor>(inputs), parts)) {
    node->apply = [dim, dtype = self.dtype()](Eager& eager, Node& n, Grads& g, Grads& out) {
      // Parts that nobody used give zeros, made for the length of the concatenation.
      std::vector<Tensor> grads(g.begin(), g.end());
      for (size_t i = 0; i < grads.size(); ++i) {
        if (!grads[i]) grads[i] = zeros(eager, n.outputs[i].sizes, dtype);
      }
      out[0] = cat(eager, grads, dim);
    };
  }
  return parts;
}

Tensor contiguous(Eager& e, const Tensor& self) {
  return self.is_contiguous() ? self : clone_contiguous(e, self);
}

Tensor detach(Eager& e, const Tensor& self) { return e.detach(self); }

Tensor dtype_of(const Tensor& self) {
  Tensor type(new TensorImpl);
  type->dtype = self.dtype();
  return type;
}

Tensor require_grad(const Tensor& self) {
  self->requires_grad = true;
  return self;
}

Tensor view_as_real(Eager& e, const Tensor& self) {
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  for (int64_t& stride : strides) stride *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  Tensor out = e.alias(self, sizes, strides);
  out->dtype = DType::f32;
  return finish_view(e, "ViewAsRealBackward0", self, out,
                     [](Eager& eager, Node&, Grads& g, Grads& result) {
                       result[0] = view_as_complex(eager, contiguous(eager, g[0]));
                     });
}

Tensor view_as_complex(Eager& e, const Tensor& self) {
  HEADROOM_CHECK(self.size(-1) == 2, "complex view of other than pairs");
  Dims sizes = self.sizes();
  Dims strides = self.strides();
  sizes.erase(sizes.size() - 1);
  strides.erase(strides.size() - 1);
  for (int64_t& stride : strides) stride /= 2;
  Tensor out = e.alias(self, sizes, strides);
  out->dtype = DType::c64;
  return finish_view(
      e, "ViewAsComplexBackward0", self, out,
      [](Eager& eager, Node&, Grads& g, Grads& result) { result[0] = view_as_real(eager, g[0]); });
}

}  // namespace headroom::op
