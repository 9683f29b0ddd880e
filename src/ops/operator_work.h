// What a recorded operator had to do: the FLOPs and bytes of its shapes, counted by the operators
// of the step model (operator/functional.h), so that `ops` and `fit` count alike.
//
// The operator runs on symbolic tensors of the recorded shapes. Bytes are what the algorithm must
// move at least once. An operator that is not in the table, whose shapes were not recorded or do
// not fit, has no count, nor has a product of a type without a rate (f64, long): none is guessed.
// Pure, thread-safe, some microseconds.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "device/device.h"
#include "formats/trace.h"
#include "operator/eager.h"
#include "operator/tensor.h"
#include "timing/call.h"

namespace headroom::ops {

// One input as a profiler records it; what is no tensor has no sizes.
struct RecordedInput {
  std::vector<int64_t> sizes;
  std::optional<op::DType> dtype;  // of a tensor
  std::vector<int64_t> numbers{};  // of a number, or a list of them, where they were kept
};

struct OperatorWork {
  double flops = 0;
  double bytes = 0;                  // read and written
  double written_bytes = 0;          // of those
  double first_elements = 0;         // of a product's first operand
  op::DType dtype = op::DType::f32;  // of the operands
  bool is_product = false;           // runs in matrix units: a GEMM or attention
  // Of a product of two matrices, as linear layers are.
  std::optional<timing::GemmShape> linear;
};

// "[[64,512],[512]] [\"float\",\"float\"]", as readers keep it (formats/trace.h), of a convolution
// with a third list of what is no tensor. A list of tensors is that many inputs. Nothing where the
// text says something else.
std::optional<std::vector<RecordedInput>> parse_inputs(std::string_view detail);

std::optional<OperatorWork> work_of_operator(std::string_view name,
                                             const std::vector<RecordedInput>& inputs);

// The tensor of a recorded input. Nothing where it is none, or its sizes are beyond reason.
std::optional<op::Tensor> symbolic(op::Eager& eager, const RecordedInput& input);

// Whether rate_of_work knows a rate for it.
[[nodiscard]] bool has_rate(op::DType dtype);

// The work of a trace's operators, each name with its inputs counted once. The trace must outlive
// it; for one thread.
class OperatorCounts {
 public:
  explicit OperatorCounts(const formats::Trace& trace) : trace_(trace) {}
  // REQUIRES: an operator of the trace.
  const std::optional<OperatorWork>& of(uint32_t operation);

 private:
  const formats::Trace& trace_;
  std::map<std::pair<uint32_t, uint32_t>, std::optional<OperatorWork>> works_;  // by name, inputs
};

// The rate that holds for a product's operands; float32 is TF32 where the kernel's name says so.
device::Rate rate_of_work(const OperatorWork& work, std::string_view kernel);

}  // namespace headroom::ops
