// Operators of ONNX that slide a window over space: convolutions and pooling. Definitions:
// docs/Operators.md of onnx/onnx, docs/ContribOperators.md of microsoft/onnxruntime.
#include <algorithm>
#include <cstdlib>

#include "model/onnx_call.h"

namespace headroom::model {
namespace {

using op::DType;
using op::require;

// One dimension of space that a window goes over.
struct Window {
  int64_t kernel = 1, stride = 1, dilation = 1, before = 0, after = 0;
  [[nodiscard]] int64_t reach() const { return (kernel - 1) * dilation + 1; }
};

int64_t nth(const std::optional<Sizes>& values, size_t i, int64_t otherwise) {
  return values && i < values->size() ? (*values)[i] : otherwise;
}

constexpr int64_t kMostWindow = int64_t{1} << 30;

std::vector<Window> windows_of(const OnnxCall& call, const Sizes& kernel) {
  const size_t none = call.input_count();
  const auto strides = call.integers("strides", none);
  const auto dilations = call.integers("dilations", none);
  const auto pads = call.integers("pads", none);
  std::vector<Window> windows(kernel.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    Window& window = windows[i];
    window = {kernel[i], nth(strides, i, 1), nth(dilations, i, 1), nth(pads, i, 0),
              nth(pads, i + kernel.size(), 0)};
    for (const int64_t value : {window.kernel, window.stride, window.dilation}) {
      require(value >= 1 && value <= kMostWindow, "a window that cannot be");
    }
    require(std::abs(window.before) <= kMostWindow && std::abs(window.after) <= kMostWindow,
            "a border that cannot be");
  }
  return windows;
}

int64_t places(const Window& window, int64_t room, std::string_view auto_pad, bool rounds_up) {
  if (auto_pad.starts_with("SAME")) return (room + window.stride - 1) / window.stride;
  const int64_t border = auto_pad == "VALID" ? 0 : window.before + window.after;
  const int64_t left = room + border - window.reach();
  require(left >= 0, "a window larger than what it goes over");
  return (left + (rounds_up ? window.stride - 1 : 0)) / window.stride + 1;
}

// Input [batch, channels, space...], weight [out, channels / groups, kernel...].
void convolve(OnnxCall& call, const OnnxValue& input, const OnnxValue& weight, DType result) {
  require(input.rank() >= 3 && weight.rank() == input.rank(),
          "a convolution of sizes that do not fit");
  const int64_t groups = call.integer("group", 1);
  require(groups >= 1 && input.sizes[1] % groups == 0 &&
              weight.sizes[1] == input.sizes[1] / groups && weight.sizes[0] >= 1,
          "a convolution of channels that do not fit");
  const auto windows = windows_of(call, Sizes(weight.sizes.begin() + 2, weight.sizes.end()));
  Sizes sizes{input.sizes[0], weight.sizes[0]};
  int64_t space = 1;
  for (size_t i = 0; i < windows.size(); ++i) {
    sizes.push_back(places(windows[i], input.sizes[i + 2], call.text("auto_pad"), false));
    check_sizes(sizes);
    space *= sizes.back();
  }
  call.make(0, sizes, result);
  OnnxWork work;
  work.count = groups;
  work.m = input.sizes[0] * space;
  work.n = std::max<int64_t>(weight.sizes[0] / groups, 1);
  work.k = weight.elements() / weight.sizes[0];
  work.type = input.dtype;
  work.has_weight = weight.is_weight;
  work.flops =
      2.0 * static_cast<double>(input.sizes[0] * space) * static_cast<double>(weight.elements());
  call.launch_product(work);
}

void run_conv(OnnxCall& call) { convolve(call, call.in(0), call.in(1), call.in(0).dtype); }
void run_conv_integer(OnnxCall& call) { convolve(call, call.in(0), call.in(1), DType::i32); }
void run_qlinear_conv(OnnxCall& call) { convolve(call, call.in(0), call.in(3), call.in(0).dtype); }

void run_conv_transpose(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const OnnxValue& weight = call.in(1);
  require(input.rank() >= 3 && weight.rank() == input.rank() && weight.sizes[0] == input.sizes[1],
          "a convolution of sizes that do not fit");
  const int64_t groups = call.integer("group", 1);
  require(groups >= 1 && groups <= kMostWindow && weight.sizes[0] >= 1, "channels that do not fit");
  const auto windows = windows_of(call, Sizes(weight.sizes.begin() + 2, weight.sizes.end()));
  const auto more = call.integers("output_padding", call.input_count());
  const auto asked = call.integers("output_shape", call.input_count());
  Sizes sizes{input.sizes[0], weight.sizes[1]};
  check_sizes({weight.sizes[1], groups});
  sizes[1] *= groups;
  for (size_t i = 0; i < windows.size(); ++i) {
    const Window& window = windows[i];
    check_sizes({input.sizes[i + 2], window.stride});
    require(std::abs(nth(more, i, 0)) <= kMostWindow, "a border that cannot be");
    const int64_t made = (input.sizes[i + 2] - 1) * window.stride + nth(more, i, 0) +
                         window.reach() - window.before - window.after;
    sizes.push_back(nth(asked, i, made));
  }
  call.make(0, std::move(sizes), input.dtype);
  OnnxWork work;
  work.m = std::max<int64_t>(input.elements() / std::max<int64_t>(input.sizes[1], 1), 1);
  work.k = std::max<int64_t>(input.sizes[1], 1);
  work.n = std::max<int64_t>(weight.elements() / weight.sizes[0], 1);
  work.type = input.dtype;
  work.has_weight = weight.is_weight;
  work.flops = 2.0 * static_cast<double>(input.elements()) *
               static_cast<double>(weight.elements()) / static_cast<double>(weight.sizes[0]);
  call.launch_product(work);
}

void run_pool(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const auto kernel = call.integers("kernel_shape", call.input_count());
  require(kernel && kernel->size() + 2 == input.rank(), "a window of other dimensions");
  Sizes sizes{input.sizes[0], input.sizes[1]};
  double window = 1;
  const auto windows = windows_of(call, *kernel);
  for (size_t i = 0; i < windows.size(); ++i) {
    sizes.push_back(places(windows[i], input.sizes[i + 2], call.text("auto_pad"),
                           call.integer("ceil_mode", 0) != 0));
    window *= static_cast<double>(windows[i].kernel);
  }
  call.make(0, sizes, input.dtype);
  call.make(1, sizes, DType::i64);
  call.launch(window * static_cast<double>(call.out(0).elements()));
}

void run_global_pool(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  require(sizes.size() >= 3, "nothing to pool");
  std::fill(sizes.begin() + 2, sizes.end(), 1);
  call.make(0, std::move(sizes), call.in(0).dtype);
  call.launch(static_cast<double>(call.in(0).elements()));
}

constexpr NamedOnnxOperator kOperators[] = {
    {"Conv", run_conv},
    {"FusedConv", run_conv},
    {"ConvInteger", run_conv_integer},
    {"QLinearConv", run_qlinear_conv},
    {"ConvTranspose", run_conv_transpose},
    {"MaxPool", run_pool},
    {"AveragePool", run_pool},
    {"LpPool", run_pool},
    {"GlobalAveragePool", run_global_pool},
    {"GlobalMaxPool", run_global_pool},
};

}  // namespace

OnnxOperator find_onnx_convolution(std::string_view operation) {
  return find_named(kOperators, operation);
}

}  // namespace headroom::model
