// Convolutions, as one operator each way (aten::convolution and convolution_backward). The
// libraries' workspaces are not modelled.
#include "operator/functional.h"
#include "operator/impossible.h"

namespace headroom::op {

namespace {

Dims output_sizes(const Tensor& input, const Tensor& weight, const Convolution& c) {
  Dims sizes{input.size(0), weight.size(0)};
  for (size_t i = 0; i < c.stride.size(); ++i) {
    const auto at = static_cast<int>(i) + 2;
    const int64_t room = input.size(at) + 2 * c.padding[i] - weight.size(at);
    require(room >= 0, "a convolution whose kernel is larger than its input");
    sizes.push_back(room / c.stride[i] + 1);
  }
  return sizes;
}

// A multiplication and an addition for each weight that an output element is made from.
double flops_of(const Tensor& out, const Tensor& weight) {
  return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(weight.elements()) /
         static_cast<double>(weight.size(0));
}

// A convolution over one dimension copies an operand that is not contiguous before it calls the
// library (_convolution and convolution_backward in ATen/native/Convolution.cpp). Over two, the
// layout decides between formats, and images come contiguous.
Tensor contiguous_scratch(Eager& e, const Tensor& operand) {
  const bool copies = operand.rank() == 3 && !operand.is_contiguous();
  return e.scratch(copies ? operand.bytes() : 0);
}

}  // namespace

Tensor convolution(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                   const Convolution& c) {
  require(input.rank() == weight.rank() &&
              static_cast<size_t>(input.rank()) == c.stride.size() + 2 &&
              input.size(1) == weight.size(1) * c.groups,
          "a convolution of sizes that do not fit");
  Tensor out = e.empty(output_sizes(input, weight, c), promote(input.dtype(), weight.dtype()));
  const double flops = flops_of(out, weight);
  const Tensor copied = contiguous_scratch(e, input);
  e.kernel(OpKind::convolution, flops, input.bytes() + weight.bytes(), out.bytes(), out.dtype());
  if (Node* node = e.history("ConvolutionBackward0", {&input, &weight, &bias}, {&out})) {
    node->save(input);
    node->save(weight);
    node->apply = [flops](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor gradient = contiguous_scratch(eager, g[0]);
      const Tensor copied_again = contiguous_scratch(eager, n.saved[0]);
      for (const size_t i : {size_t{0}, size_t{1}}) {
        if (n.needs(i)) result[i] = eager.empty(n.saved[i].sizes(), n.saved[i].dtype());
      }
      if (n.needs(2)) result[2] = eager.empty({n.saved[1].size(0)}, n.saved[1].dtype());
      eager.kernel(OpKind::convolution, 2 * flops, g[0].bytes() + n.saved[1].bytes(),
                   n.saved[1].bytes());
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
