// Rows that go to the ranks which have their experts, and back, as torch's functional collective
// does it: what arrives is a block of its own, and what was sent is let go by who holds it.
//
// Source: torch/csrc/distributed/c10d/Functional.cpp (AllToAllSingle) (PyTorch 2.13).
#include "operator/functional.h"

namespace headroom::op {

namespace {

Tensor exchanged(Eager& e, const Tensor& self, int64_t rows) {
  const GradMode no_grad(e, false);
  const Tensor sent = contiguous(e, self);
  Dims sizes = self.sizes();
  sizes[0] = rows;
  Tensor arrived = e.empty(sizes, self.dtype());
  e.collective(OpKind::all_to_all, sent.bytes(), arrived.bytes());
  return arrived;
}

}  // namespace

Tensor exchange_rows(Eager& e, const Tensor& self, int64_t rows) {
  Tensor out = exchanged(e, self, rows);
  if (Node* node = e.history("AllToAllSingle", {&self}, {&out})) {
    node->apply = [sent = self.size(0)](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = exchanged(eager, g[0], sent);
    };
  }
  return out;
}

Tensor read_back(Eager& e, const Tensor& self) {
  e.kernel(OpKind::read_back, 0, self.bytes(), 0);
  return self;
}

}  // namespace headroom::op
