// Reductions over dimensions, and the sum that undoes broadcasting.
#include "operator/functional.h"
#include "operator/scratch.h"

namespace headroom::op {

namespace {

// By position, for no dims all of them.
InlineVector<uint8_t, kDimsMax> reduced_dimensions(const Tensor& self, std::span<const int> dims) {
  InlineVector<uint8_t, kDimsMax> reduced;
  for (int i = 0; i < self.rank(); ++i) reduced.push_back(dims.empty() ? 1 : 0);
  for (const int dim : dims) reduced[static_cast<size_t>(dim < 0 ? dim + self.rank() : dim)] = 1;
  return reduced;
}

Dims reduced_sizes(const Tensor& self, std::span<const int> dims, bool keepdim) {
  const Dims& sizes = self.sizes();
  const auto reduced = reduced_dimensions(self, dims);
  Dims out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!reduced[i]) out.push_back(sizes[i]);
    if (reduced[i] && keepdim) out.push_back(1);
  }
  return out;
}

Tensor reduce(Eager& e, OpKind kind, const Tensor& self, std::span<const int> dims, bool keepdim,
              DType dtype) {
  Tensor out = e.empty(reduced_sizes(self, dims, keepdim), dtype);
  // Sums of half types are kept in float32; the largest of them needs no more than its own type.
  const int64_t accumulator = is_half(dtype) && kind != OpKind::amax ? 4 : element_size(dtype);
  const ReductionScratch scratch =
      reduction_scratch(e.environment(), self, reduced_dimensions(self, dims), accumulator);
  const Tensor staging = e.scratch(scratch.staging_bytes);
  const Tensor semaphores = e.scratch(scratch.semaphore_bytes);
  e.kernel(kind, static_cast<double>(self.elements()), self.bytes(), out.bytes());
  return out;
}

// A gradient seen at the sizes before the reduction, without a copy.
Tensor unreduced(Eager& e, const Tensor& grad, const Dims& kept, const Dims& before) {
  const Tensor shaped = grad.sizes() == kept ? grad : view(e, contiguous(e, grad), kept);
  return expand(e, shaped, before);
}

DType sum_type(const Tensor& self) { return is_floating(self.dtype()) ? self.dtype() : DType::i64; }

}  // namespace

Tensor sum(Eager& e, const Tensor& self, std::span<const int> dims, bool keepdim) {
  // Integers of other types are cast to int64 first (make_reduction in
  // ATen/native/ReduceOpsUtils.h).
  const bool is_cast = !is_floating(self.dtype()) && self.dtype() != DType::i64;
  const Tensor widened = e.scratch(is_cast ? self.elements() * 8 : 0);
  Tensor out = reduce(e, OpKind::sum, self, dims, keepdim, sum_type(self));
  if (Node* node = e.history("SumBackward1", {&self}, {&out})) {
    node->apply = [kept = reduced_sizes(self, dims, true), before = self.sizes()](
                      Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = unreduced(eager, g[0], kept, before);
    };
  }
  return out;
}

Tensor mean(Eager& e, const Tensor& self, std::span<const int> dims, bool keepdim) {
  Tensor out = reduce(e, OpKind::mean, self, dims, keepdim, self.dtype());
  if (Node* node = e.history("MeanBackward1", {&self}, {&out})) {
    const double count = static_cast<double>(self.elements()) / static_cast<double>(out.elements());
    node->apply = [kept = reduced_sizes(self, dims, true), before = self.sizes(), count](
                      Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = div_scalar(eager, unreduced(eager, g[0], kept, before), count);
    };
  }
  return out;
}

Tensor amax(Eager& e, const Tensor& self, int dim, bool keepdim) {
  const int dims[] = {dim};
  return reduce(e, OpKind::amax, self, dims, keepdim, self.dtype());
}

Tensor argmax(Eager& e, const Tensor& self, int dim) {
  const int dims[] = {dim};
  return reduce(e, OpKind::argmax, self, dims, false, DType::i64);
}

Tensor vector_norm(Eager& e, const Tensor& self, int dim) {
  const int dims[] = {dim};
  return reduce(e, OpKind::vector_norm, self, dims, false, self.dtype());
}

namespace {

Tensor flip(Eager& e, const Tensor& self) {
  Tensor out = e.empty_like(self, self.dtype());
  e.kernel(OpKind::copy, 0, self.bytes(), out.bytes());
  return out;
}

}  // namespace

Tensor cumsum(Eager& e, const Tensor& self, int dim, std::optional<DType> dtype) {
  Tensor out = e.empty(self.sizes(), dtype.value_or(sum_type(self)));
  e.kernel(OpKind::cumsum, static_cast<double>(self.elements()), self.bytes(), out.bytes());
  if (!is_floating(out.dtype())) return out;
  if (Node* node = e.history("CumsumBackward0", {&self}, {&out})) {
    node->apply = [dim](Eager& eager, Node&, Grads& g, Grads& result) {
      // grad.flip(dim).cumsum(dim).flip(dim)
      result[0] = flip(eager, cumsum(eager, flip(eager, g[0]), dim));
    };
  }
  return out;
}

Tensor sum_to(Eager& e, const Tensor& self, const Dims& sizes) {
  if (self.sizes() == sizes) return self;
  const size_t lead = self.sizes().size() - sizes.size();
  InlineVector<int, kDimsMax> dims;
  for (size_t i = 0; i < self.sizes().size(); ++i) {
    if (i < lead || (sizes[i - lead] == 1 && self.sizes()[i] != 1)) {
      dims.push_back(static_cast<int>(i));
    }
  }
  if (dims.empty()) return view(e, self, sizes);
  Tensor out =
      reduce(e, OpKind::sum, self, std::span(dims.begin(), dims.size()), true, sum_type(self));
  return lead > 0 ? view(e, out, sizes) : out;
}

}  // namespace headroom::op
