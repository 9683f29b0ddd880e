// One operator of an ONNX graph while it is run on sizes (onnx_run.h): what it takes, what it
// makes, and what that costs. Internal to the running of ONNX graphs.
//
// What cannot be (sizes that do not fit, an operand that is missing) throws op::Impossible, which
// run_onnx() turns into an Error that names the operator.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/onnx_run.h"
#include "operator/impossible.h"

namespace headroom::model {

using Sizes = std::vector<int64_t>;

struct OnnxValue {
  Sizes sizes;
  op::DType dtype = op::DType::f32;
  bool is_there = false;
  bool is_weight = false;     // or made of weights and constants alone
  bool is_half_byte = false;  // two elements in a byte
  bool has_values = false;
  std::vector<double> values;

  [[nodiscard]] int64_t elements() const;
  [[nodiscard]] double bytes() const;
  [[nodiscard]] size_t rank() const { return sizes.size(); }
};

// Of a tensor that a machine could hold.
inline constexpr int64_t kMostElements = int64_t{1} << 50;

// Whose values are kept: they are few.
inline constexpr int64_t kMostKnownValues = 4096;

// What computing values may cost in one graph, so that no file keeps the machine busy for long.
class OnnxBudget {
 public:
  // Throws where so many operations are not left.
  void spend(int64_t operations);

 private:
  int64_t left_ = 100'000'000;  // a second at most; the graphs of models need some thousands
};

// Throws where no machine holds it.
void check_sizes(const Sizes& sizes);
// The sizes that all of them broadcast to.
[[nodiscard]] Sizes broadcast(const Sizes& a, const Sizes& b);
// A dimension as a place in the sizes; negative ones count from the end.
[[nodiscard]] size_t axis_of(int64_t axis, size_t rank);

class OnnxCall {
 public:
  OnnxCall(const OnnxNode& node, int64_t opset, std::vector<const OnnxValue*> inputs,
           std::vector<OnnxValue> outputs, std::vector<OnnxWork>& work, OnnxBudget& budget)
      : node_(node),
        opset_(opset),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        work_(work),
        budget_(budget) {}

  [[nodiscard]] const OnnxNode& node() const { return node_; }
  [[nodiscard]] int64_t opset() const { return opset_; }
  [[nodiscard]] size_t input_count() const { return inputs_.size(); }
  [[nodiscard]] size_t output_count() const { return outputs_.size(); }
  [[nodiscard]] bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  [[nodiscard]] const OnnxValue& in(size_t i) const {
    op::require(has(i), "an operand is missing");
    return *inputs_[i];
  }
  [[nodiscard]] std::vector<OnnxValue>& outputs() { return outputs_; }
  OnnxValue& out(size_t i) { return outputs_[i]; }
  [[nodiscard]] const OnnxValue& out(size_t i) const { return outputs_[i]; }

  [[nodiscard]] bool has_attribute(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] int64_t integer(std::string_view name, int64_t otherwise) const;
  [[nodiscard]] std::string_view text(std::string_view name) const;
  [[nodiscard]] const OnnxAttribute* find(std::string_view name) const;
  // As an attribute, or as the values of input `i`; nothing where neither is there. Throws where
  // the values are not known.
  [[nodiscard]] std::optional<Sizes> integers(std::string_view name, size_t i) const;
  [[nodiscard]] std::optional<std::vector<double>> numbers(std::string_view name, size_t i) const;

  [[nodiscard]] double bytes_read() const;  // of all inputs
  [[nodiscard]] double bytes_written() const;

  // As integers(), which must be there.
  [[nodiscard]] Sizes sizes_asked(std::string_view name, size_t i) const;

  // Output `i`, where somebody wants it, has these sizes and this type.
  void make(size_t i, Sizes sizes, op::DType dtype);
  void set_values(size_t i, std::vector<double> values);
  // Output 0 is input 0 in another shape: nothing moves.
  void make_view(Sizes sizes);

  // Goes over all that is there, or over so many bytes.
  void launch(double flops);
  void launch_moving(double read, double written);
  // Products of m x k by k x n, the operands of `type`, over all that is there, or over so many
  // bytes.
  void launch_product(const OnnxWork& sizes);
  void launch_product(const OnnxWork& sizes, double read, double written);

  // To be called before values are computed.
  void spend(int64_t operations) const { budget_.spend(operations); }

 private:
  const OnnxNode& node_;
  int64_t opset_;
  std::vector<const OnnxValue*> inputs_;
  std::vector<OnnxValue> outputs_;
  std::vector<OnnxWork>& work_;
  OnnxBudget& budget_;
};

using OnnxOperator = void (*)(OnnxCall& call);
struct NamedOnnxOperator {
  std::string_view name;
  OnnxOperator run;
};
[[nodiscard]] OnnxOperator find_named(std::span<const NamedOnnxOperator> operators,
                                      std::string_view operation);

// Null where it is not known; the file is named as the function: onnx_products.cpp ...
[[nodiscard]] OnnxOperator find_onnx_product(std::string_view operation);
[[nodiscard]] OnnxOperator find_onnx_convolution(std::string_view operation);
[[nodiscard]] OnnxOperator find_onnx_attention(std::string_view operation);
[[nodiscard]] OnnxOperator find_onnx_elementwise(std::string_view operation);
[[nodiscard]] OnnxOperator find_onnx_layout(std::string_view operation);
[[nodiscard]] OnnxOperator find_onnx_view(std::string_view operation);

}  // namespace headroom::model
