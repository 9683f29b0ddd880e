// Elementwise arithmetic: broadcasting, type promotion, and what each operator keeps for backward.
// A backward formula is one C++ expression where PyTorch's is, since its temporaries live to the
// end of the expression.
#include "operator/functional.h"

namespace headroom::op {

namespace {

// The type of an operator on two tensors: one of no dimensions does not widen one that has some,
// unless it is of a higher kind (torch.result_type).
DType result_type(const Tensor& a, const Tensor& b) {
  if (a.rank() > 0 && b.rank() == 0 && is_floating(a.dtype()) >= is_floating(b.dtype())) {
    return a.dtype();
  }
  if (b.rank() > 0 && a.rank() == 0 && is_floating(b.dtype()) >= is_floating(a.dtype())) {
    return b.dtype();
  }
  return promote(a.dtype(), b.dtype());
}

DType real_type(const Tensor& self) {
  return is_floating(self.dtype()) ? self.dtype() : DType::f32;
}

Tensor binary(Eager& e, OpKind kind, const Tensor& a, const Tensor& b, DType dtype) {
  Tensor out = e.elementwise_output({&a, &b}, dtype);
  e.kernel(kind, static_cast<double>(out.elements()), a.bytes() + b.bytes(), out.bytes());
  return out;
}

Tensor unary(Eager& e, OpKind kind, const Tensor& self, DType dtype) {
  Tensor out = e.empty_like(self, dtype);
  e.kernel(kind, static_cast<double>(out.elements()), self.bytes(), out.bytes());
  return out;
}

}  // namespace

Tensor add(Eager& e, const Tensor& self, const Tensor& other) {
  Tensor out = binary(e, OpKind::add, self, other, result_type(self, other));
  if (Node* node = e.history("AddBackward0", {&self, &other}, {&out})) {
    node->apply = [](Eager&, Node& n, Grads& g, Grads& result) {
      if (n.needs(0)) result[0] = g[0];
      if (n.needs(1)) result[1] = g[0];
    };
  }
  return out;
}

Tensor sub(Eager& e, const Tensor& self, const Tensor& other) {
  Tensor out = binary(e, OpKind::sub, self, other, result_type(self, other));
  if (Node* node = e.history("SubBackward0", {&self, &other}, {&out})) {
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) result[1] = neg(eager, g[0]);
      if (n.needs(0)) result[0] = g[0];
    };
  }
  return out;
}

namespace {

// The conjugate as an operator sees it that must have it in memory.
Tensor conjugate(Eager& e, const Tensor& self) {
  return self.dtype() == DType::c64 ? clone(e, self) : self;
}

}  // namespace

Tensor polar(Eager& e, const Tensor& radius, const Tensor& angle) {
  GradMode no_grad(e, false);
  return binary(e, OpKind::polar, radius, angle, DType::c64);
}

Tensor mul(Eager& e, const Tensor& self, const Tensor& other) {
  Tensor out = binary(e, OpKind::mul, self, other, result_type(self, other));
  if (Node* node = e.history("MulBackward0", {&self, &other}, {&out})) {
    node->save_if(node->needs(0), other);
    node->save_if(node->needs(1), self);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) result[1] = mul(eager, g[0], conjugate(eager, n.saved[1]));
      if (n.needs(0)) result[0] = mul(eager, g[0], conjugate(eager, n.saved[0]));
    };
    e.finish(*node);
  }
  return out;
}

Tensor div(Eager& e, const Tensor& self, const Tensor& other) {
  Tensor out = binary(e, OpKind::div, self, other, result_type(self, other));
  if (!is_floating(out.dtype())) out->dtype = DType::f32;
  if (Node* node = e.history("DivBackward0", {&self, &other}, {&out})) {
    node->save(other);
    node->save_if(node->needs(1), self);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) {
        // -grad * ((self / other) / other)
        const Tensor once = div(eager, n.saved[1], n.saved[0]);
        const Tensor twice = div(eager, once, n.saved[0]);
        const Tensor negated = neg(eager, g[0]);
        result[1] = mul(eager, negated, twice);
      }
      if (n.needs(0)) result[0] = div(eager, g[0], n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor add_scalar(Eager& e, const Tensor& self, double /*other*/) {
  Tensor out = unary(e, OpKind::add, self, self.dtype());
  if (Node* node = e.history("AddBackward0", {&self}, {&out})) {
    node->apply = [](Eager&, Node&, Grads& g, Grads& result) { result[0] = g[0]; };
  }
  return out;
}

Tensor mul_scalar(Eager& e, const Tensor& self, double other) {
  Tensor out = unary(e, OpKind::mul, self, real_type(self));
  if (Node* node = e.history("MulBackward0", {&self}, {&out})) {
    node->apply = [other](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = mul_scalar(eager, g[0], other);
    };
  }
  return out;
}

Tensor div_scalar(Eager& e, const Tensor& self, double other) {
  Tensor out = unary(e, OpKind::div, self, real_type(self));
  if (Node* node = e.history("DivBackward0", {&self}, {&out})) {
    node->apply = [other](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = div_scalar(eager, g[0], other);
    };
  }
  return out;
}

Tensor add_inplace(Eager& e, const Tensor& self, const Tensor& other) {
  e.kernel(OpKind::add, static_cast<double>(self.elements()), self.bytes() + other.bytes(),
           self.bytes());
  return self;
}

Tensor neg(Eager& e, const Tensor& self) {
  Tensor out = unary(e, OpKind::neg, self, self.dtype());
  if (Node* node = e.history("NegBackward0", {&self}, {&out})) {
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = neg(eager, g[0]);
    };
  }
  return out;
}

Tensor pow(Eager& e, const Tensor& self, double exponent) {
  Tensor out = unary(e, OpKind::pow, self, real_type(self));
  if (Node* node = e.history("PowBackward0", {&self}, {&out})) {
    node->save(self);
    node->apply = [exponent](Eager& eager, Node& n, Grads& g, Grads& result) {
      // grad * (exponent * self.pow(exponent - 1))
      result[0] =
          mul(eager, g[0], mul_scalar(eager, pow(eager, n.saved[0], exponent - 1), exponent));
    };
    e.finish(*node);
  }
  return out;
}

Tensor sqrt(Eager& e, const Tensor& self) {
  Tensor out = unary(e, OpKind::sqrt, self, real_type(self));
  if (Node* node = e.history("SqrtBackward0", {&self}, {&out})) {
    node->save(out);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      // grad / (2 * result)
      result[0] = div(eager, g[0], mul_scalar(eager, n.saved[0], 2));
    };
    e.finish(*node);
  }
  return out;
}

Tensor rsqrt(Eager& e, const Tensor& self) {
  Tensor out = unary(e, OpKind::rsqrt, self, real_type(self));
  if (Node* node = e.history("RsqrtBackward0", {&self}, {&out})) {
    node->save(out);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      // -0.5 * grad * result.pow(3)
      result[0] = mul(eager, mul_scalar(eager, g[0], -0.5), pow(eager, n.saved[0], 3));
    };
    e.finish(*node);
  }
  return out;
}

Tensor exp(Eager& e, const Tensor& self) {
  Tensor out = unary(e, OpKind::exp, self, real_type(self));
  if (Node* node = e.history("ExpBackward0", {&self}, {&out})) {
    node->save(out);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = mul(eager, g[0], n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor log(Eager& e, const Tensor& self) {
  Tensor out = unary(e, OpKind::log, self, real_type(self));
  if (Node* node = e.history("LogBackward0", {&self}, {&out})) {
    node->save(self);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = div(eager, g[0], n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor sin(Eager& e, const Tensor& self) {
  Tensor out = unary(e, OpKind::sin, self, real_type(self));
  if (Node* node = e.history("SinBackward0", {&self}, {&out})) {
    node->save(self);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = mul(eager, g[0], cos(eager, n.saved[0]));
    };
    e.finish(*node);
  }
  return out;
}

Tensor cos(Eager& e, const Tensor& self) {
  Tensor out = unary(e, OpKind::cos, self, real_type(self));
  if (Node* node = e.history("CosBackward0", {&self}, {&out})) {
    node->save(self);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = mul(eager, g[0], neg(eager, sin(eager, n.saved[0])));
    };
    e.finish(*node);
  }
  return out;
}

namespace {

// The node has saved what was clamped.
void set_clamp_backward(Node& node, int bounds) {
  node.apply = [bounds](Eager& eager, Node& n, Grads& g, Grads& result) {
    const Tensor zero = zeros(eager, {}, g[0].dtype());
    const Tensor inside = compare(eager, n.saved[0], nullptr);
    // The second comparison is combined with the first in place.
    const Tensor below = bounds > 1 ? compare(eager, n.saved[0], nullptr) : Tensor();
    result[0] = where(eager, inside, g[0], zero);
  };
}

}  // namespace

Tensor clamp(Eager& e, const Tensor& self, int bounds) {
  Tensor out = unary(e, OpKind::clamp, self, self.dtype());
  if (Node* node = e.history("ClampBackward1", {&self}, {&out})) {
    node->save(self);
    set_clamp_backward(*node, bounds);
    e.finish(*node);
  }
  return out;
}

Tensor clamp_assign(Eager& e, const Tensor& self, int bounds) {
  Tensor out = e.detach(self);
  if (Node* node = e.history("ClampBackward1", {&self}, {&out})) {
    GradMode no_grad(e, false);
    node->save(clone(e, self));  // it is about to be overwritten
    set_clamp_backward(*node, bounds);
    e.finish(*node);
  }
  e.kernel(OpKind::clamp, static_cast<double>(self.elements()), self.bytes(), self.bytes());
  return out;
}

Tensor compare(Eager& e, const Tensor& self, const Tensor* other) {
  GradMode no_grad(e, false);
  return other ? binary(e, OpKind::compare, self, *other, DType::boolean)
               : unary(e, OpKind::compare, self, DType::boolean);
}

Tensor where(Eager& e, const Tensor& condition, const Tensor& self, const Tensor& other) {
  Tensor out = e.elementwise_output({&condition, &self, &other}, result_type(self, other));
  e.kernel(OpKind::where, 0, condition.bytes() + self.bytes() + other.bytes(), out.bytes());
  if (Node* node = e.history("WhereBackward0", {&self, &other}, {&out})) {
    node->save(condition);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      // grad where it was taken, a scalar zero elsewhere
      if (n.needs(1)) result[1] = where(eager, n.saved[0], zeros(eager, {}, g[0].dtype()), g[0]);
      if (n.needs(0)) result[0] = where(eager, n.saved[0], g[0], zeros(eager, {}, g[0].dtype()));
    };
    e.finish(*node);
  }
  return out;
}

Tensor masked_fill(Eager& e, const Tensor& self, const Tensor& mask) {
  Tensor out = e.elementwise_output({&self, &mask}, self.dtype());
  e.kernel(OpKind::masked_fill, 0, self.bytes() + mask.bytes(), out.bytes());
  if (Node* node = e.history("MaskedFillBackward0", {&self}, {&out})) {
    node->save(mask);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = masked_fill(eager, g[0], n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
