#include "ops/convolution_work.h"

#include <algorithm>
#include <array>

#include "operator/functional.h"
#include "operator/impossible.h"
#include "ops/work_sum.h"

namespace headroom::ops {
namespace {

using Inputs = std::vector<RecordedInput>;

constexpr size_t kNowhere = SIZE_MAX;
constexpr int64_t kLargestNumber = 1 << 20;

// Where an operator has what (native_functions.yaml of PyTorch 2.13).
struct Known {
  std::string_view name;
  size_t input, weight;
  size_t stride, padding, dilation, groups;  // kNowhere: 1
  size_t transposed = kNowhere;
  size_t wanted = kNowhere;  // which gradients, of a backward
};
constexpr std::array kKnown{
    Known{"aten::convolution", 0, 1, 3, 4, 5, 8, 6},
    Known{"aten::_convolution", 0, 1, 3, 4, 5, 8, 6},
    Known{"aten::convolution_overrideable", 0, 1, 3, 4, 5, 8, 6},
    Known{"aten::cudnn_convolution", 0, 1, 3, 2, 4, 5},
    Known{"aten::cudnn_convolution_relu", 0, 1, 3, 4, 5, 6},
    Known{"aten::miopen_convolution", 0, 1, 4, 3, 5, 6},
    Known{"aten::miopen_depthwise_convolution", 0, 1, 4, 3, 5, 6},
    Known{"aten::mkldnn_convolution", 0, 1, 4, 3, 5, 6},
    Known{"aten::_slow_conv2d_forward", 0, 1, 4, 5, kNowhere, kNowhere},
    Known{"aten::_conv_depthwise2d", 0, 1, 4, 5, 6, kNowhere},
    Known{"aten::convolution_backward", 1, 2, 4, 5, 6, 9, 7, 10},
};

const Known* find(std::string_view name) {
  const auto* known = std::find_if(kKnown.begin(), kKnown.end(),
                                   [&](const Known& one) { return one.name == name; });
  return known == kKnown.end() ? nullptr : known;
}

// Numbers of each dimension of space; one stands for all. Nothing where they are not there or not
// within the bounds.
std::optional<op::Dims> numbers_at(const Inputs& inputs, size_t place, int space, int64_t least) {
  if (place >= inputs.size()) return std::nullopt;
  const std::vector<int64_t>& numbers = inputs[place].numbers;
  const auto wanted = static_cast<size_t>(space);
  if (numbers.size() != 1 && numbers.size() != wanted) return std::nullopt;
  op::Dims dims;
  for (size_t i = 0; i < wanted; ++i) {
    const int64_t number = numbers[numbers.size() == 1 ? 0 : i];
    if (number < least || number > kLargestNumber) return std::nullopt;
    dims.push_back(number);
  }
  return dims;
}

bool is_one_everywhere(const op::Dims& dims) {
  return std::all_of(dims.begin(), dims.end(), [](int64_t number) { return number == 1; });
}

// Nothing where it is one of those that are not counted.
std::optional<op::Convolution> convolution_of(const Known& known, const Inputs& inputs,
                                              const op::Tensor& input, const op::Tensor& weight) {
  const int space = input.rank() - 2;
  const auto stride = numbers_at(inputs, known.stride, space, 1);
  const auto padding = numbers_at(inputs, known.padding, space, 0);
  if (!stride || !padding || weight.rank() != input.rank()) return std::nullopt;
  if (known.dilation != kNowhere) {
    const auto dilation = numbers_at(inputs, known.dilation, space, 1);
    if (!dilation || !is_one_everywhere(*dilation)) return std::nullopt;
  }
  if (known.transposed != kNowhere) {
    const auto transposed = numbers_at(inputs, known.transposed, 1, 0);
    if (!transposed || (*transposed)[0] != 0) return std::nullopt;
  }
  // A depthwise one has as many groups as channels.
  int64_t groups = weight.size(1) > 0 ? input.size(1) / weight.size(1) : 1;
  if (known.groups != kNowhere) {
    const auto said = numbers_at(inputs, known.groups, 1, 1);
    if (!said) return std::nullopt;
    groups = (*said)[0];
  }
  return op::Convolution{*stride, *padding, groups};
}

// The products of a backward, each of which makes one gradient: the input's and the weight's. Both
// where it is not known which are wanted.
struct Gradients {
  double of_input = 1;
  double of_weight = 1;
};
Gradients gradients_of(const Known& known, const Inputs& inputs) {
  if (known.wanted >= inputs.size() || inputs[known.wanted].numbers.size() != 3) return {};
  const std::vector<int64_t>& wanted = inputs[known.wanted].numbers;
  return {wanted[0] != 0 ? 1.0 : 0.0, wanted[1] != 0 ? 1.0 : 0.0};
}

double bytes_of(const op::Tensor& tensor) {
  return static_cast<double>(tensor.elements()) *
         static_cast<double>(op::element_size(tensor.dtype()));
}

}  // namespace

bool is_convolution(std::string_view name) { return find(name) != nullptr; }

std::optional<OperatorWork> work_of_convolution(std::string_view name, const Inputs& inputs) {
  const Known* known = find(name);
  if (known == nullptr || std::max(known->input, known->weight) >= inputs.size()) {
    return std::nullopt;
  }
  WorkSum sum;
  op::Eager eager(sum, {});
  eager.set_grad_enabled(false);
  OperatorWork work;
  double products = 1;
  try {
    const auto input = symbolic(eager, inputs[known->input]);
    const auto weight = symbolic(eager, inputs[known->weight]);
    if (!input || !weight || input->rank() < 3 || !has_rate(input->dtype())) return std::nullopt;
    const auto made = convolution_of(*known, inputs, *input, *weight);
    if (!made) return std::nullopt;
    op::convolution(eager, *input, *weight, op::Tensor(), *made);
    work.dtype = input->dtype();
    work.first_elements = static_cast<double>(input->elements());
    work.written_bytes = sum.written;
    if (known->wanted != kNowhere) {
      const Gradients made_here = gradients_of(*known, inputs);
      products = made_here.of_input + made_here.of_weight;
      work.written_bytes =
          made_here.of_input * bytes_of(*input) + made_here.of_weight * bytes_of(*weight);
    }
  } catch (const op::Impossible&) {
    return std::nullopt;  // sizes that do not fit
  }
  // Each product reads two of input, weight and result, and makes the third.
  work.is_product = true;
  work.flops = products * sum.flops;
  work.bytes = products * sum.bytes;
  return work;
}

}  // namespace headroom::ops
