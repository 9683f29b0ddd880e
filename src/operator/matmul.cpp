// Matrix products. mm, addmm, bmm and baddbmm are kernels; matmul and linear fold to them the way
// ATen/native/LinearAlgebra.cpp and Linear.cpp do, copies included.
#include <algorithm>

#include "operator/functional.h"
#include "operator/scratch.h"

namespace headroom::op {

namespace {

double product_flops(int64_t batch, int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
         static_cast<double>(k);
}

bool is_column_major(const Tensor& tensor) {
  return tensor.strides()[0] == 1 && tensor.strides()[1] == tensor.sizes()[0];
}

Tensor raw_mm(Eager& e, OpKind kind, const Tensor& a, const Tensor& b, bool through_lt = false) {
  Tensor out;
  if (e.recall(kind, {&out})) return out;
  out = e.empty({a.size(0), b.size(1)}, promote(a.dtype(), b.dtype()));
  e.use_blas(through_lt);
  e.kernel({.kind = OpKind::mm,
            .flops = product_flops(1, a.size(0), b.size(1), a.size(1)),
            .bytes_read = a.bytes() + b.bytes(),
            .bytes_written = out.bytes(),
            .element_bytes = static_cast<uint8_t>(element_size(out.dtype())),
            .has_bias = through_lt});
  e.made(kind, {&out});
  return out;
}

// The gradients take the layout of the operand they belong to (mm_mat1_backward, mm_mat2_backward).
Tensor gradient_of_first(Eager& e, const Tensor& grad, const Tensor& second,
                         bool first_is_column_major) {
  if (first_is_column_major) {
    return t(e, mm(e, second, t(e, grad)));
  }
  return mm(e, grad, t(e, second));
}

Tensor gradient_of_second(Eager& e, const Tensor& grad, const Tensor& first,
                          bool second_is_column_major) {
  if (second_is_column_major) {
    return t(e, mm(e, t(e, grad), first));
  }
  return mm(e, t(e, first), grad);
}

}  // namespace

Tensor mm(Eager& e, const Tensor& self, const Tensor& mat2) {
  Tensor out = raw_mm(e, OpKind::mm, self, mat2);
  if (Node* node = e.history("MmBackward0", {&self, &mat2}, {&out})) {
    node->save_if(node->needs(1), self);
    node->save_if(node->needs(0), mat2);
    node->apply = [first = is_column_major(self), second = is_column_major(mat2)](
                      Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) result[1] = gradient_of_second(eager, g[0], n.saved[0], second);
      if (n.needs(0)) result[0] = gradient_of_first(eager, g[0], n.saved[1], first);
    };
    e.finish(*node);
  }
  return out;
}

Tensor addmm(Eager& e, const Tensor& bias, const Tensor& mat1, const Tensor& mat2) {
  // A bias of one dimension is added by the product's epilogue, which is the Lt library's
  // (addmm_out_cuda_impl in ATen/native/cuda/Blas.cpp).
  Tensor out = raw_mm(e, OpKind::addmm, mat1, mat2, bias.rank() == 1);
  if (Node* node = e.history("AddmmBackward0", {&bias, &mat1, &mat2}, {&out})) {
    node->save_if(node->needs(2), mat1);
    node->save_if(node->needs(1), mat2);
    node->apply = [first = is_column_major(mat1), second = is_column_major(mat2)](
                      Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(0)) result[0] = g[0];
      if (n.needs(1)) result[1] = gradient_of_first(eager, g[0], n.saved[1], first);
      if (n.needs(2)) result[2] = gradient_of_second(eager, g[0], n.saved[0], second);
    };
    e.finish(*node);
  }
  return out;
}

namespace {

Tensor raw_bmm(Eager& e, OpKind kind, const Tensor& a, const Tensor& b) {
  require(a.rank() == 3 && b.rank() == 3 && a.size(0) == b.size(0) && a.size(2) == b.size(1),
          "a matrix product of sizes that do not fit");
  Tensor out;
  if (e.recall(kind, {&out})) return out;
  out = e.empty({a.size(0), a.size(1), b.size(2)}, promote(a.dtype(), b.dtype()));
  e.use_blas();
  e.kernel(OpKind::bmm, product_flops(a.size(0), a.size(1), b.size(2), a.size(2)),
           a.bytes() + b.bytes(), out.bytes(), out.dtype());
  e.made(kind, {&out});
  return out;
}

}  // namespace

Tensor bmm(Eager& e, const Tensor& self, const Tensor& mat2) {
  Tensor out = raw_bmm(e, OpKind::bmm, self, mat2);
  if (Node* node = e.history("BmmBackward0", {&self, &mat2}, {&out})) {
    node->save_if(node->needs(1), self);
    node->save_if(node->needs(0), mat2);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) result[1] = bmm(eager, transpose(eager, n.saved[0], 1, 2), g[0]);
      if (n.needs(0)) result[0] = bmm(eager, g[0], transpose(eager, n.saved[1], 1, 2));
    };
    e.finish(*node);
  }
  return out;
}

Tensor baddbmm(Eager& e, const Tensor& input, const Tensor& batch1, const Tensor& batch2,
               double alpha) {
  Tensor out = raw_bmm(e, OpKind::baddbmm, batch1, batch2);
  if (Node* node = e.history("BaddbmmBackward0", {&input, &batch1, &batch2}, {&out})) {
    node->save_if(node->needs(2), batch1);
    node->save_if(node->needs(1), batch2);
    node->apply = [alpha](Eager& eager, Node& n, Grads& g, Grads& result) {
      const auto scaled = [&](const Tensor& grad) {
        return alpha == 1 ? grad : mul_scalar(eager, grad, alpha);
      };
      if (n.needs(1)) result[1] = scaled(bmm(eager, g[0], transpose(eager, n.saved[1], 1, 2)));
      if (n.needs(2)) result[2] = scaled(bmm(eager, transpose(eager, n.saved[0], 1, 2), g[0]));
      if (n.needs(0)) result[0] = g[0];
    };
    e.finish(*node);
  }
  return out;
}

namespace {

Dims with_last(const Dims& sizes, int64_t last) {
  Dims changed = sizes;
  changed.back() = last;
  return changed;
}

// _unsafe_view: nobody else has the product, so autograd does not count it as a view of it.
Tensor unsafe_view(Eager& e, const Tensor& product, const Dims& sizes) {
  Tensor out = view(e, product, sizes);
  out->base = Tensor();
  return out;
}

// [..., k] x [k, n] folds the leading dimensions into rows.
Tensor folded_mm(Eager& e, const Tensor& self, const Tensor& other) {
  const Tensor rows = reshape(e, self, {-1, self.size(-1)});
  return unsafe_view(e, mm(e, rows, other), with_last(self.sizes(), other.size(1)));
}

Tensor batched_matmul(Eager& e, const Tensor& self, const Tensor& other) {
  Dims batch;
  const int rank = std::max(self.rank(), other.rank());
  for (int i = 0; i < rank - 2; ++i) {
    const int from_end = i - rank;
    const int64_t a = -from_end <= self.rank() ? self.size(from_end) : 1;
    const int64_t b = -from_end <= other.rank() ? other.size(from_end) : 1;
    batch.push_back(a == 1 ? b : a);
  }
  const auto operand = [&](const Tensor& tensor) {
    Dims sizes = batch;
    sizes.push_back(tensor.size(-2));
    sizes.push_back(tensor.size(-1));
    const Tensor expanded = expand(e, tensor, sizes);
    return reshape(e, expanded, {product(batch), tensor.size(-2), tensor.size(-1)});
  };
  Dims sizes = batch;
  sizes.push_back(self.size(-2));
  sizes.push_back(other.size(-1));
  const Tensor first = operand(self);  // named: C++ does not say which argument is made first
  return unsafe_view(e, bmm(e, first, operand(other)), sizes);
}

// Rows are folded where a gradient of the matrix is wanted, even by a copy; else only where the
// rows lie one behind the other (should_fold in LinearAlgebra.cpp).
bool should_fold(const Tensor& self, const Tensor& other) {
  if (other.requires_grad() || self.elements() == 0) return true;
  for (size_t i = 0; i + 2 < self.sizes().size(); ++i) {
    if (self.strides()[i] != self.strides()[i + 1] * self.sizes()[i + 1]) return false;
  }
  return true;
}

}  // namespace

Tensor matmul(Eager& e, const Tensor& self, const Tensor& other) {
  if (self.rank() == 2 && other.rank() == 2) return mm(e, self, other);
  if (self.rank() >= 3 && other.rank() == 2) {
    return should_fold(self, other) ? folded_mm(e, self, other) : batched_matmul(e, self, other);
  }
  require(self.rank() >= 2 && other.rank() >= 3, "matmul of vectors is not modelled");
  return batched_matmul(e, self, other);
}

namespace {

// The solution is laid out by columns, whatever the right side is.
Tensor raw_solve_triangular(Eager& e, const Tensor& matrix, const Tensor& right) {
  Dims sizes = right.sizes();
  const size_t columns = sizes.size() - 1;
  const size_t rows = columns - 1;
  std::swap(sizes[rows], sizes[columns]);
  Dims strides = contiguous_strides(sizes);
  std::swap(strides[rows], strides[columns]);
  Tensor out = e.empty_strided(right.sizes(), strides, right.dtype());
  // The batched solver is handed an address for each matrix and each right side.
  const int64_t pointers = triangular_solve_pointer_bytes(matrix);
  const Tensor of_matrices = e.scratch(pointers);
  const Tensor of_right_sides = e.scratch(pointers);
  const int64_t n = right.size(-2);
  e.use_blas();
  e.kernel(OpKind::solve_triangular, static_cast<double>(right.elements()) * static_cast<double>(n),
           matrix.bytes() + right.bytes(), out.bytes());
  return out;
}

}  // namespace

Tensor solve_triangular(Eager& e, const Tensor& self, const Tensor& other) {
  require(self.rank() >= 2 && other.rank() == self.rank() && self.size(-1) == other.size(-2),
          "a triangular system of sizes that do not fit");
  Tensor out = raw_solve_triangular(e, self, other);
  if (Node* node = e.history("LinalgSolveTriangularBackward0", {&self, &other}, {&out})) {
    node->save(self);
    node->save(out);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      // G_B = self^-H grad, G_A = (-G_B result^H).tril(-1)
      const Tensor right = raw_solve_triangular(eager, transpose(eager, n.saved[0], -2, -1), g[0]);
      if (n.needs(0)) {
        Tensor of_matrix = matmul(eager, right, transpose(eager, n.saved[1], -2, -1));
        of_matrix = neg(eager, of_matrix);
        result[0] = triangle(eager, of_matrix);
      }
      if (n.needs(1)) result[1] = right;
    };
    e.finish(*node);
  }
  return out;
}

Tensor linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  if (bias && input.rank() != 2 && input.is_contiguous()) {
    // Flattened first, transposed second (_flatten_nd_linear): in backward the weight comes first.
    const Tensor rows = view(e, input, {-1, input.size(-1)});
    return view(e, addmm(e, bias, rows, t(e, weight)), with_last(input.sizes(), weight.size(0)));
  }
  const Tensor transposed = t(e, weight);
  if (!bias) return matmul(e, input, transposed);
  if (input.rank() == 2) return addmm(e, bias, input, transposed);
  // matmul, then the bias is added in place.
  Tensor product = matmul(e, input, transposed);
  if (Node* node = e.history("AddBackward0", {&product, &bias}, {&product})) {
    node->apply = [](Eager&, Node& n, Grads& g, Grads& result) {
      if (n.needs(0)) result[0] = g[0];
      if (n.needs(1)) result[1] = g[0];
    };
  }
  return product;
}

namespace {

void zero3_linear_backward(Eager& e, Node& n, Grads& grads, Grads& result) {
  const Tensor& input = n.saved[0];
  const Tensor& grad = grads[0];
  const int64_t features = grad.size(-1);
  if (n.needs(0)) result[0] = matmul(e, grad, n.saved[1]);
  if (n.needs(1)) {
    const Tensor rows = grad.rank() > 2 ? reshape(e, grad, {-1, features}) : grad;
    const Tensor columns = t(e, rows);
    const bool is_deep = input.rank() > 2;
    result[1] = matmul(e, columns, is_deep ? reshape(e, input, {-1, input.size(-1)}) : input);
  }
  if (n.needs(2)) result[2] = sum_to(e, grad, {features});
}

}  // namespace

Tensor zero3_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  Tensor out;
  {
    const GradMode no_grad(e, false);
    const Tensor transposed = t(e, weight);
    if (bias && input.rank() == 2) {
      out = addmm(e, bias, input, transposed);
    } else {
      out = matmul(e, input, transposed);
      if (bias) {
        const auto elements = static_cast<double>(out.elements());
        e.kernel(OpKind::add, elements, out.bytes() + bias.bytes(), out.bytes());
      }
    }
  }
  if (Node* node =
          e.history("LinearFunctionForZeroStage3Backward", {&input, &weight, &bias}, {&out})) {
    node->save(input);
    node->save(weight);
    node->save(bias);
    node->apply = &zero3_linear_backward;
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
